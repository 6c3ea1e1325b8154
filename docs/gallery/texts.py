"""
Sentences and the words that tell them apart
============================================

Twenty-four sentences about four things. Sentences are short, so what counts is which words occur
(``Bernoulli``), not how often; words that occur once cannot join anything and are left out. Each
branch is labelled with words that it has more of than its siblings.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer

from bhclust import BayesianHierarchicalClustering, plots
from bhclust.explanations import label_nodes

sentences = """
The planet orbits its star in eleven days
A telescope saw the star dim as the planet passed
The moon of the planet has an orbit of ice
Astronomers turned the telescope to a distant star
Light of the star bends near the orbit of the planet
The telescope found a planet without a star
Boil the rice with butter and salt
Add garlic and butter to the sauce
Stir the sauce and salt the rice
The soup needs garlic and a spoon of butter
Serve the rice with the sauce and fresh garlic
Melt butter for the sauce then add salt
The goalkeeper saved the penalty in the final match
Her team won the match with a late goal
The striker scored a goal from a penalty
A match without a goal bored the team
The team trained for the final match
Two goals by the striker and the team won the final
The bank raised the interest on loans
Interest on savings fell as the bank cut rates
Loans cost more when rates of interest rise
The bank wrote off loans to the market
Markets fell as interest rates rose
Savings at the bank earn less interest than markets pay
""".strip().splitlines()

counter = CountVectorizer(stop_words="english", min_df=2, binary=True)
occurs = counter.fit_transform(sentences).toarray()
table = pd.DataFrame(occurs, columns=counter.get_feature_names_out())
clustering = BayesianHierarchicalClustering("bernoulli").fit(table)
for label in range(clustering.n_clusters_):
    (members,) = (clustering.labels_ == label).nonzero()
    words = [record.feature for record in clustering.explain_cluster(label, top=3)]
    print(f"{len(members)} sentences, set apart by {', '.join(words)}:")
    print("   ", sentences[members[0]])

# %%
# Joins that the model rejects are red; they stand between the subjects.

fig, ax = plt.subplots(figsize=(9, 5), layout="constrained")
words = label_nodes(clustering, top=2)
plots.dendrogram(clustering, ax, orientation="left", top=8, node_labels=words)
plt.show()
