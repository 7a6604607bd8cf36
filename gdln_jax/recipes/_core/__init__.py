"""What all recipes share: declaration, course of a run, files, base data, ensembles."""
