"""Schemes made from schemes: tensor products, direct sums, permutations, changes of basis, and fewer additions."""
