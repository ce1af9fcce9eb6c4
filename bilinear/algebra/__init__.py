"""Schemes made of schemes: tensor products, direct sums, permutations, changes of basis, and fewer additions."""
