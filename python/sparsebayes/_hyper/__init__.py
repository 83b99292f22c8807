"""Learning the parameters of kernels.

1. A Gaussian process on a sample of the rows proposes parameters (`CovarianceEvidence`). Its evidence is
   smooth in the parameters and, as it selects no basis functions, does not favour narrow kernels.
2. For classes, of which labels say less, a Gaussian process of logits has to predict rows left out better
   with the proposal than with equal lengths.
3. Sequential fits with these lengths, multiplied by several factors, predict held-out rows, and the best
   lengths win. Where final weights are to be those of a Gaussian process, it has chosen the factor.
4. The same with linear terms beside the kernels, which the model has if rows left out are predicted better:
   kernels that follow a plane are so long that few functions cannot follow the rest.
5. Inputs whose length is far longer than they vary leave the kernel, unless held-out rows need them.
"""
