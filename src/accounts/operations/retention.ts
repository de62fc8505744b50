/** How long request details are kept. */
import Type from 'typebox';

import { theRetention } from '../audit-subjects.ts';
import { operation } from '../perform.ts';

export const retentionOperations = {
  /** Makes details of requests that ended before a time unavailable now; their rows are removed in the background. */
  prune_usage: operation({
    schema: Type.Object({
      /** Milliseconds since 1970. */
      before: Type.Integer({ minimum: 0, maximum: 8_640_000_000_000 }),
    }),
    audit: { action: 'usage.prune', subject: theRetention },
    run: async ({ before }, { repositories, now }) => {
      const { keptSince, removedAt } = await repositories.keepUsageSince({ before, now: now() });
      return { keptSince, isRemoved: removedAt !== null };
    },
  }),
};
