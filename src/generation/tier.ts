/**
 * What a request's place in its model's queue costs and is worth: its service tier, in the order of the queue. `batch` is for the lines of
 * batches, which no client asks for by name.
 */
export const tiers = ['priority', 'default', 'flex', 'batch'] as const;
export type Tier = (typeof tiers)[number];
