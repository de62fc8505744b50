/** How long request details are kept, and which key signs their days. */
import Type from 'typebox';

import { theRetention, theSigningKey } from '../audit-subjects.ts';
import { operation } from '../perform.ts';
import { rotateSigningKey } from '../signing-key.ts';

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
  }) /** From now on another key signs days; all public keys stay. */,
  rotate_signing_key: operation({
    schema: Type.Object({}),
    audit: { action: 'signing_key.rotate', subject: theSigningKey },
    run: async (_request, services) => {
      const { id, publicKey } = await rotateSigningKey(services);
      return { id, publicKey: Buffer.from(publicKey).toString('hex') };
    },
  }),
};
