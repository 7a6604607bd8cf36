"""Joint diagonalisation of symmetric matrices, degenerate ones included. Floor 2."""

import numpy as np


def joint_eigenvectors(stack: np.ndarray, sweeps: int = 30) -> np.ndarray:
    """Orthogonal matrix that diagonalises symmetric matrices (k, r, r) together as well as it can.

    Starts from the eigenvectors of a generic combination and polishes by Jacobi rotations
    (Cardoso and Souloumiac 1996), which settles what is nearly degenerate in the combination but
    not in its parts.
    """
    stack = 0.5 * (stack + np.swapaxes(stack, 1, 2))
    mix = np.random.default_rng(1).uniform(0.5, 1.5, size=len(stack))
    _, basis = np.linalg.eigh(np.tensordot(mix, stack, axes=1))
    a = basis.T @ stack @ basis
    r = a.shape[1]
    size = max(np.abs(a).max(initial=0.0), 1e-300)
    for _ in range(sweeps):
        turned = 0.0
        for i in range(r - 1):
            for j in range(i + 1, r):
                h = np.stack([a[:, i, i] - a[:, j, j], 2 * a[:, i, j]])
                g = h @ h.T
                # Equal up to rounding in every matrix: any basis of the pair will do.
                if g[0, 0] + g[1, 1] < (1e-13 * size) ** 2 * len(stack):
                    continue
                angle = 0.25 * np.arctan2(2 * g[0, 1], g[0, 0] - g[1, 1])
                if abs(angle) < 1e-15:
                    continue
                turned = max(turned, abs(angle))
                c, s = np.cos(angle), np.sin(angle)
                turn = np.array([[c, -s], [s, c]])
                a[:, :, [i, j]] = a[:, :, [i, j]] @ turn
                a[:, [i, j], :] = turn.T @ a[:, [i, j], :]
                basis[:, [i, j]] = basis[:, [i, j]] @ turn
        if turned < 1e-14:
            break
    return basis
