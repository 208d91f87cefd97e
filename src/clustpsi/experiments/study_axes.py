"""What the study of measures covers: its data sets, levels of skew, measures and models."""

#: Samples of each class in the paper's data sets. ACSIncome, Fashion-MNIST, CIFAR-10 and Sentiment140: the complete
#: sets. Amazon reviews: the class shares of a random 18 % of the rows, scaled to all 50,000. Serengeti: a
#: class-balanced subset with 12 of the 13 classes, 54,034 of 286,586 rows.
CLASS_COUNTS: dict[str, tuple[int, ...]] = {
    "acs_income": (1_050_300, 614_200),
    "serengeti": (7296, 5964, 5868, 2776, 3091, 4262, 3986, 4472, 967, 5205, 5087, 5060),
    "fmnist": (7_000,) * 10,
    "cifar10": (6_000,) * 10,
    "sent140": (800_000,) * 2,
    "amazon_reviews": (3_327, 11_132, 3_068, 15_930, 8_617, 7_926),
}

#: Eleven levels for each protocol, as many as the paper has. It names six alphas and three S, which are among them.
STUDY_LEVELS: dict[str, tuple[float, ...]] = {
    "dirichlet": (50, 10, 3, 1, 0.7, 0.5, 0.3, 0.2, 0.14, 0.09, 0.05),
    "similarity": (1, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.06, 0.03, 0.01, 0),
}
NUM_CLIENTS = (10, 50, 100)
MEASURES = ("wpsi", "hellinger", "jensen_shannon", "earth_mover")
KNOWN_MEASURES = (*MEASURES, "label_earth_mover")
MODELS = ("lightgbm", "svm", "mlp", "tree")
HELD_OUT = ("seed", "dataset")
TARGETS = {"dirichlet": ("log_alpha", "alpha"), "similarity": ("s",)}
