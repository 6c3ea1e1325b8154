"""What a cluster is: conjugate models, their contract, and a check of it."""

from bhclust.models.auto import choose_model, named_model
from bhclust.models.base import ClusterModel, Column, FeatureLevels, Hyperparameter
from bhclust.models.check import check_model
from bhclust.models.discrete import Bernoulli, Categorical, Multinomial, Poisson
from bhclust.models.gaussian import DiagonalGaussian, Gaussian
from bhclust.models.gp_expert import GaussianProcessExpert
from bhclust.models.inducing import InducingPointExpert
from bhclust.models.product import Mixed
from bhclust.models.robust_series import RobustTimeSeries
from bhclust.models.time_series import TimeSeries

__all__ = [
    "Bernoulli",
    "Categorical",
    "ClusterModel",
    "Column",
    "DiagonalGaussian",
    "FeatureLevels",
    "Gaussian",
    "GaussianProcessExpert",
    "Hyperparameter",
    "InducingPointExpert",
    "Mixed",
    "Multinomial",
    "Poisson",
    "RobustTimeSeries",
    "TimeSeries",
    "check_model",
    "choose_model",
    "named_model",
]
