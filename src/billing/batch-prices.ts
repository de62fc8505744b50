import type { Prices } from '../catalog/pricing.ts';

/** Lines of batches run on capacity that nobody else uses, for half the price. Prices are far above one, so no cent is lost in halves. */
export const batchPrices = ({ input, output, cacheRead }: Prices): Prices => ({
  input: input / 2n,
  output: output / 2n,
  cacheRead: cacheRead / 2n,
});
