"""The papers behind the package, as BibTeX.

A recipe names its source by key and prints it. Imports nothing.
"""

PAPERS = {
    "saxe2022": """\
@inproceedings{saxe2022neural,
  title     = {The Neural Race Reduction: Dynamics of Abstraction in Gated Networks},
  author    = {Saxe, Andrew M. and Sodhani, Shagun and Lewallen, Sam},
  booktitle = {Proceedings of the 39th International Conference on Machine Learning},
  series    = {Proceedings of Machine Learning Research},
  volume    = {162},
  pages     = {19287--19309},
  year      = {2022},
  eprint    = {2207.10430},
  archivePrefix = {arXiv},
}""",
    "jarvis2025": """\
@inproceedings{jarvis2025make,
  title     = {Make Haste Slowly: A Theory of Emergent Structured Mixed Selectivity
               in Feature Learning {ReLU} Networks},
  author    = {Jarvis, Devon and Klein, Richard and Rosman, Benjamin and Saxe, Andrew M.},
  booktitle = {International Conference on Learning Representations},
  year      = {2025},
  eprint    = {2503.06181},
  archivePrefix = {arXiv},
}""",
}


def citation(*papers: str) -> str:
    """BibTeX of the papers that the package rests on.

    Args:
        *papers: keys among `"saxe2022"` (N: gated deep linear networks and the race reduction)
            and `"jarvis2025"` (H: ReLU networks seen as gated networks). Default: both.

    Returns:
        The entries, parted by an empty line.
    """
    unknown = [paper for paper in papers if paper not in PAPERS]
    if unknown:
        raise ValueError(f"citation: unknown paper {unknown[0]!r}; known are {sorted(PAPERS)}")
    return "\n\n".join(PAPERS[paper] for paper in (papers or PAPERS))
