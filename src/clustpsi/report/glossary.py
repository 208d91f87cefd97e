"""The words that pages use for things that not everybody knows, each with one plain explanation."""

#: By key: the word, and what it means.
TERMS = {
    "accuracy": ("accuracy", "The share of test samples that get the right label, over the test data of all clients."),
    "ad": ("AD", "Average distance: how far a client's accuracy is from 1, on average over clients. Less is better."),
    "alpha": (
        "α",
        "The parameter of the Dirichlet partition, which deals the data out to clients: the smaller, the more the "
        "clients' labels differ.",
    ),
    "client": ("client", "Whoever has data and trains without giving it away: a hospital, a phone, a camera site."),
    "cluster": ("cluster", "A group of clients whose label mixes are alike."),
    "constant": (
        "constant answer",
        "Always naming one class, without any training. A model that does not beat this has learnt nothing of use.",
    ),
    "ecdf": (
        "cumulative share",
        "For each accuracy: which share of the clients has at most that. A line further to the right is better.",
    ),
    "emd": (
        "EMD",
        "Earth mover's distance as the paper has it, between sorted shares: it does not see which class is which.",
    ),
    "federation": ("federation", "All clients together."),
    "hd": ("HD", "Hellinger distance between clients' label mixes: 0 if they are alike, 1 if they share no label."),
    "holm": (
        "Holm's correction",
        "Who makes many tests finds something by chance. The correction raises the p-values to make up for that.",
    ),
    "jsd": ("JSD", "Jensen-Shannon distance of clients' label mixes: 0 if alike, 1 if as different as can be."),
    "label_emd": (
        "label EMD",
        "Earth mover's distance between label mixes: the share of samples that would have to change their label to "
        "make two clients alike, on average over pairs.",
    ),
    "p": (
        "p-value",
        "How often chance alone would give a difference of at least this size. Below 0.05 it is usually called real.",
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
    "skew": ("label skew", "How much the clients' mixes of labels differ."),
    "worst10": ("worst tenth", "The mean accuracy of the tenth of the clients that fare worst."),
    "wpsi": ("WPSI", "The PSI of all clients, averaged by their numbers of samples: the skew of the whole federation."),
}

#: Answers that need no training, as a run's summary names them.
CONSTANTS = {
    "client": "Constant: client's most frequent class",
    "federation": "Constant: everybody's most frequent class",
}
