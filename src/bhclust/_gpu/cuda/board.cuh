// What a search keeps: live clusters by position, a record that every block has, places and graves.

constexpr int ROWS = 4;        // clusters that look for a new partner in one step
constexpr int MOST_FOCI = 8;   // foci that a block scores at once
constexpr int MOST_HOLES = 4;  // places of dead clusters that are remembered for new ones
constexpr int LISTED = 6;      // leaves that a block tells for runs
constexpr int OF_WARP = 2;     // leaves of them that can be of one warp
constexpr int MOST_LISTED = 512; // leaves that a run can choose from
constexpr int CONSUMED = 1024; // places of leaves that a run has taken
constexpr int MOST_GROWN = 128; // leaves after which log f is computed anew: sums pile up roundings
constexpr int LEAF_WORDS = 16; // room for what is known of the leaf that a run takes

// Live clusters by position; region 0 holds leaves that are still alone, in the order of their ids.
// A dead one has an infinite mass (evidence in a rose tree) and the score -inf.
struct Region {
    int *id, *partner;  // partner: -1 if it was merged away, the score is then an upper bound
    double *score, *tiebreak, *needed;
    double *rest_score, *rest_tiebreak, *rest_needed;  // a bound on all other partners
    double *mass, *evidence, *weight, *log_d, *log_1m_r, *log_1m_pi, *n_children, *child_mass, *child_log_d;
};

// What a block tells the others: score, then order and partner; in a rose tree the tiebreak too.
// Where there are runs, its best leaves for the new cluster (score and mass, and where they are), the
// best of its other leaves, of all pairs without the new cluster, and of it with a cluster.
struct Told {
    Pair first, second;
    Pair leaves[LISTED], bounds;
    double clusters;
    int position[LISTED];
};

// What a block knows after a pass about pairs with the new cluster, and about all others.
struct Outlook {
    double top, top_mass, second;  // the best leaf and the score of the next one
    int position;
    double others, clusters;       // the best pair without the new cluster, and of it with a cluster

    BHCLUST_DEVICE Outlook()
        : top(-INFINITE), top_mass(0.0), second(-INFINITE), position(-1), others(-INFINITE), clusters(-INFINITE) {}

    BHCLUST_DEVICE void see_leaf(int p, double raw, double mass) {
        second = fmax(second, fmin(top, raw));
        if (!(raw > top)) return;
        top = raw;
        top_mass = mass;
        position = p;
    }
};

// The same of a warp, with its best leaves.
struct WarpOutlook {
    Pair leaves[OF_WARP];  // score and mass
    int position[OF_WARP];
    double rest, others, clusters;
};

// What is carried from launch to launch.
struct Control {
    i64 n_positions[2], n_live[2], n_holes, holes[MOST_HOLES];
    i64 n_merges, n_rescans, n_pairs, failed, crowded;
    i64 n_read[2];  // leaves and clusters whose statistics were read in all passes
    i64 n_offers;   // of them, to which a new cluster was offered
    i64 n_passes;   // passes that offered one
    i64 n_steps;
};

struct Search {
    Mixing mixing;
    i64 n_leaves, n_slots, n_steps, least_dead, focus_apart, scratch_size, facts_size;
    double leaf_log_d;
    const double* all_facts;  // of all parts; the first facts_size are copied to the block's memory
    Region regions[2];
    int* position_of;      // by id, of those in region 1 and of leaves
    int* merges;           // left, right, operation of each
    double* merge_log_f;
    Told* told;            // [2][blocks]: what blocks tell each other
    i64* n_told;           // how often a block has told something
    Candidate* row_best;   // [2][ROWS][blocks]
    double* far_focus;     // foci that do not fit into shared memory, ROWS a block; or null
    double* far_scratch;   // likewise for the warps' scratch
    Control* control;
};

struct Board {
    Control control;
    Entry entries[MOST_WARPS];
    Candidate candidates[MOST_WARPS];
    double sums[2 * MOST_WARPS];
    WarpOutlook outlooks[MOST_WARPS];
    Entry mine;                 // best of this block's clusters
    Entry chosen;
    Candidate rows[ROWS];       // clusters that look again, then what they found
    Node row_nodes[MOST_FOCI], merged;  // of a merge: left and right
    Place row_places[ROWS], left, right;
    Place dying[2];             // merged in this step
    Place dead[2];              // merged in the last one: not yet marked
    int lost[2];                // partners that the last pass still knew: ids of the first pair of a step
    int left_id, reuse;         // reuse: which of the pair the first focus holds already (1 left, 2 right)
    int step, n_rows, done, steps_left;
    int newest, new_position;   // the cluster of the last merge in this launch, and its place
    int focus_id;               // cluster that the first focus holds, or -1
    double single_prior;        // what the prior adds to the odds of the new cluster and a leaf
    double log_f;               // of the new cluster
    double common;              // what the scores of the new cluster with all leaves have in common
    int next, n_consumed;       // of a run
    int n_grown;                // leaves that the focus took since its log f was computed anew
    int n_listed;               // leaves that the run could choose from when it began
    double limit;               // no leaf that is not listed scored more in the last pass
    unsigned leaf[LEAF_WORDS];  // that it takes, as its thread has read it ahead
};

constexpr int BOARD_BYTES = 6448;  // the host reserves so much for the board
static_assert(sizeof(Board) <= BOARD_BYTES, "the board has outgrown its place");
static_assert(sizeof(Told) == 8 * 22 && sizeof(Candidate) == 8 * 7, "the host reserves other sizes");
static_assert(sizeof(Control) == 8 * 19, "the host reads another record");

// What a run keeps where the foci of clusters that look again are in other steps: the host leaves room.
struct RunRoom {
    double mass[MOST_LISTED];   // of the leaves to choose from
    int position[MOST_LISTED];
    int consumed[CONSUMED];     // ids of the leaves it has taken, by their hash
};

constexpr int RUN_BYTES = 10240;  // the host reserves so much behind the first focus
static_assert(sizeof(RunRoom) <= RUN_BYTES, "what a run keeps has outgrown its place");

BHCLUST_DEVICE RunRoom& run_room(const Search& s, double* focus) { return *(RunRoom*)(focus + s.focus_apart); }
BHCLUST_DEVICE const RunRoom& run_room(const Search& s, const double* focus) {
    return *(const RunRoom*)(focus + s.focus_apart);
}

// Whether merges without a pass are there for a model: runs.cuh.
template <bool ROSE, class M>
constexpr bool HAS_RUNS = M::RISES && !ROSE && sizeof(typename M::template Ahead<1>) <= 4 * LEAF_WORDS;

// A walk over a block's share of a region. Leaves go to the lanes of a warp, clusters to a warp as a
// whole. They are dealt to blocks first, so that few of them keep all blocks busy; clusters start
// with the last warp, because the first ones have the leaves.
template <bool BY_WARP>
struct Walk {
    static BHCLUST_DEVICE int owner(int position) { return (BY_WARP ? position : position / WARP) % gridDim.x; }
    static BHCLUST_DEVICE int step() { return warps_of_block() * gridDim.x * (BY_WARP ? 1 : WARP); }
    static BHCLUST_DEVICE int first(int region) {
        int warp = region == 0 ? warp_of_thread() : warps_of_block() - 1 - warp_of_thread();
        return (warp * gridDim.x + blockIdx.x) * (BY_WARP ? 1 : WARP);
    }
    // position of this lane in the group that starts at a position
    static BHCLUST_DEVICE int own(int start) { return start + (BY_WARP ? 0 : lane_of_thread()); }
    // whether this lane does the bookkeeping of its position
    static BHCLUST_DEVICE bool leads() { return !BY_WARP || lane_of_thread() == 0; }
};

template <class M>
BHCLUST_DEVICE bool owns(Place at) {
    int owner = at.region == 1 || M::ONE_BY_ONE ? Walk<true>::owner(at.position) : Walk<false>::owner(at.position);
    return owner == (int)blockIdx.x;
}

// Some threads, in different warps, that have work of their own while the others gather.
BHCLUST_DEVICE bool is_helper(int k) {
    int warp = warps_of_block() - 1 - k % warps_of_block();
    return (int)threadIdx.x == warp * WARP + k;
}

BHCLUST_DEVICE Place place_of(const Search& s, const Board& board, int id) {
    if (id == board.newest) return Place{1, board.new_position};
    return Place{id >= s.n_leaves ? 1 : 0, s.position_of[id]};
}

BHCLUST_DEVICE Place place_of(const Search& s, const Board& board, const Entry& entry) {
    return entry.order < s.n_leaves ? Place{0, entry.order} : place_of(s, board, entry.order);
}

BHCLUST_DEVICE int id_at(const Search& s, const Entry& entry) {
    return entry.order < s.n_leaves ? s.regions[0].id[entry.order] : entry.order;
}

template <bool ROSE>
BHCLUST_DEVICE Node node_at(const Search& s, Place at) {
    const Region& g = s.regions[at.region];
    int p = at.position;
    Node node;
    node.weight = at.region == 0 ? 1.0 : g.weight[p];
    node.mass = g.mass[p];
    node.log_d = s.leaf_log_d;
    node.evidence = 0.0;
    node.log_1m_r = node.log_1m_pi = -INFINITE;
    node.n_children = node.child_mass = node.child_log_d = 0.0;
    if (ROSE) node.evidence = g.evidence[p];
    if (ROSE && at.region == 1) {
        node.log_d = g.log_d[p];
        node.log_1m_r = g.log_1m_r[p];
        node.log_1m_pi = g.log_1m_pi[p];
        node.n_children = g.n_children[p];
        node.child_mass = g.child_mass[p];
        node.child_log_d = g.child_log_d[p];
    }
    return node;
}

template <bool ROSE>
BHCLUST_DEVICE void write_node(const Search& s, int position, const Node& node, int id) {
    const Region& g = s.regions[1];
    g.id[position] = id;
    g.partner[position] = -1;
    g.score[position] = g.rest_score[position] = -INFINITE;
    g.mass[position] = node.mass;
    g.weight[position] = node.weight;
    s.position_of[id] = position;
    if (!ROSE) return;
    g.tiebreak[position] = g.needed[position] = -INFINITE;
    g.rest_tiebreak[position] = g.rest_needed[position] = -INFINITE;
    g.evidence[position] = node.evidence;
    g.log_d[position] = node.log_d;
    g.log_1m_r[position] = node.log_1m_r;
    g.log_1m_pi[position] = node.log_1m_pi;
    g.n_children[position] = node.n_children;
    g.child_mass[position] = node.child_mass;
    g.child_log_d[position] = node.child_log_d;
}

template <bool ROSE>
BHCLUST_DEVICE void mark_dead(const Region& g, int position) {
    (ROSE ? g.evidence : g.mass)[position] = INFINITE;
    g.score[position] = g.rest_score[position] = -INFINITE;
    g.partner[position] = -1;
}

// Mark the clusters of the last merge as dead. While a merge is made all blocks still read them, so
// this waits for the next step; the place of one may have gone to a new cluster by then.
template <bool ROSE, class M>
BHCLUST_DEVICE void bury(const Search& s, const Board& board, int reused) {
    for (int m = 0; m < 2; m++) {
        const Place at = board.dead[m];
        if (at.region == NOWHERE || !owns<M>(at) || (at.region == 1 && at.position == reused)) continue;
        mark_dead<ROSE>(s.regions[at.region], at.position);
    }
}

// Find the new cluster a place and count what a merge changes. One thread of every block does this.
template <bool ROSE, class M>
BHCLUST_DEVICE void keep_books(const Search& s, Board& board) {
    Control& control = board.control;
    const int position = (int)(control.n_holes > 0 ? control.holes[--control.n_holes] : control.n_positions[1]++);
    bury<ROSE, M>(s, board, position);
    for (int m = 0; m < 2; m++) {
        const Place at = board.dying[m];
        control.n_live[at.region]--;
        // What is not remembered stays empty until the host moves the clusters together.
        if (at.region == 1 && control.n_holes < MOST_HOLES) control.holes[control.n_holes++] = at.position;
    }
    control.n_live[1]++;
    board.step = (int)control.n_merges++;
    board.new_position = position;
    board.newest = board.focus_id = (int)s.n_leaves + board.step;
}

// A new cluster is offered to all others that live.
BHCLUST_DEVICE void count_pass(Control& control) {
    for (int region = 0; region < 2; region++) {
        const i64 n = control.n_live[region] - region;
        control.n_pairs += n;
        control.n_read[region] += n;
        control.n_offers += n;
    }
    control.n_passes++;
}

// Whether so many positions are empty that the host should move the clusters together.
BHCLUST_DEVICE bool is_crowded(const Search& s, const Control& control) {
    bool found = control.n_positions[1] + 2 > s.n_slots;
    for (int region = 0; region < 2; region++) {
        i64 n = control.n_positions[region], n_dead = n - control.n_live[region];
        found = found || (n_dead > s.least_dead && n_dead > n / 16);
    }
    return found;
}
