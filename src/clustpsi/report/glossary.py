"""Technical words on web pages, each with one plain explanation."""

#: By key: the word, and what it means.
TERMS = {
    "accuracy": ("accuracy", "The share of test samples that get the right label, over the test data of all clients."),
    "ad": ("AD", "Average distance: how far a client's accuracy is from 1, on average over clients. Less is better."),
    "alpha": (
        "α",
        "The parameter of the Dirichlet partition, which deals the data out to clients: the smaller, the more the "
        "clients' labels differ.",
    ),
    "balanced_accuracy": (
        "balanced accuracy",
        "The accuracy for each class, averaged over classes: rare classes count as much as frequent ones.",
    ),
    "client": ("client", "Someone with data who trains without giving it away: a hospital, a phone, a camera site."),
    "cluster": ("cluster", "A group of clients whose label mixes are alike."),
    "constant": (
        "constant answer",
        "Always naming one class, without any training. A model that does not beat this has learnt nothing of use.",
    ),
    "dirichlet": (
        "Dirichlet",
        "Each class is dealt out to the clients by shares drawn at random: a client gets much of some classes and "
        "little of others. α says how uneven that is.",
    ),
    "driver": ("driver", "The classes that add most to the client's PSI, compared with all clients together."),
    "emd": (
        "EMD",
        "Earth mover's distance as the paper has it, between sorted shares: it does not see which class is which.",
    ),
    "epoch": ("epoch", "One pass of a client over its own training samples."),
    "federation": ("federation", "All clients together."),
    "hd": ("HD", "Hellinger distance between clients' label mixes: 0 if they are alike, 1 if they share no label."),
    "holm": (
        "Holm's correction",
        "Among many tests, some find a difference by chance. The correction raises the p-values to make up for that.",
    ),
    "iid": ("evenly", "Every client gets a random sample of all data, so that labels differ only by chance."),
    "jsd": ("JSD", "Jensen-Shannon distance of clients' label mixes: 0 if alike, 1 if as different as can be."),
    "label_emd": (
        "label EMD",
        "Earth mover's distance between label mixes: the share of samples that would have to change their label to "
        "make two clients alike, on average over pairs.",
    ),
    "macro_f1": (
        "macro F1",
        "The mean over classes of F1, which is high only if a class is found wherever it is and nowhere else.",
    ),
    "majority": ("majority labels", "The share of samples that have their client's most frequent label."),
    "natural": ("own clients", "The data says itself who has which sample, such as the state of a person."),
    "p": (
        "p-value",
        "How often chance alone would give a difference of at least this size. Below 0.05 it is usually called real.",
    ),
    "preset": (
        "preset",
        "Settings that belong together. Robust: signed features, Laplace's smoothing, and no clusters where the labels "
        "differ hardly more than by chance or clients form no clear groups. Paper: as the paper has it.",
    ),
    "psi": (
        "PSI",
        "Population stability index: how far one client's label mix is from that of all clients together. Below 0.1: "
        "no significant shift, up to 0.25: moderate, above: major.",
    ),
    "round": ("round", "The server sends models to clients, they train, and it combines what they send back."),
    "s": ("S", "The parameter of the Similarity partition: the share of the data that is dealt out evenly."),
    "sdad": ("SDAD", "How much the clients' distances from accuracy 1 differ from each other. Less is fairer."),
    "seed": (
        "seed",
        "Number that starts the random draws. Each seed is another partition, another split and another initial model: "
        "the spread over seeds shows how much is chance.",
    ),
    "signed": (
        "signed features",
        "Clients described by how much too much or too little of each class they have. The paper's own description "
        "does not tell too much from too little.",
    ),
    "silhouette": (
        "silhouette",
        "How much nearer clients are to their own cluster than to the next, from -1 to 1. Below 0.25 the clusters may "
        "be chance.",
    ),
    "similarity": (
        "Similarity",
        "A share S of the data is dealt out evenly, the rest sorted by label: the smaller S, the fewer labels a client "
        "has.",
    ),
    "skew": ("label skew", "How much the clients' mixes of labels differ."),
    "smoothing": (
        "smoothing",
        "PSI cannot be computed where a client has no sample of a class. Additive: a tiny share takes its place, which "
        "gives large PSI. Clip: shares below a limit are raised to it. Laplace: every class gets half a sample more, "
        "so that small clients do not look more skewed than they are.",
    ),
    "worst10": ("worst tenth", "The mean accuracy of the tenth of the clients that fare worst."),
    "wpsi": ("WPSI", "The PSI of all clients, averaged by their numbers of samples: the skew of the whole federation."),
}

#: Answers that need no training, as a run's summary names them.
CONSTANTS = {
    "client": "Constant: client's most frequent class",
    "federation": "Constant: everybody's most frequent class",
}
#: Shorter names of these, for lines of charts.
CONSTANT_LINES = {"client": "constant per client", "federation": "constant for all"}
