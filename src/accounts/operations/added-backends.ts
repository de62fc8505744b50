/** Operations on the servers that operators add to a source of backends. */
import Type from 'typebox';

import { serverUrlOf } from '../../platform/outbound/server-url.ts';
import { StoreError } from '../../store/store-error.ts';
import { theAddedBackend } from '../audit-subjects.ts';
import { checkedModel } from '../checks.ts';
import { checkedText, OperationError } from '../operation.ts';
import { operation } from '../perform.ts';
import { orNull, text } from '../request-schema.ts';

const named = { model: text, source: text, url: text };

export const backendOperations = {
  /** Adds a server, or changes its rank and weight. */
  add_backend: operation({
    schema: Type.Object({
      ...named,
      rank: orNull(Type.Integer({ minimum: 1, maximum: 100 })),
      weight: orNull(Type.Number({ minimum: 0.01, maximum: 100 })),
    }),
    audit: { action: 'backend.add', subject: theAddedBackend },
    run: async ({ rank, weight, ...input }, { repositories, now }) => {
      const row = { ...placeOf(input), rank, weight };
      await repositories.addBackend({ ...row, addedAt: now() });
      return row;
    },
  }),

  /** Stops sending requests to a server; those running there go on. */
  remove_backend: operation({
    schema: Type.Object(named),
    audit: { action: 'backend.remove', subject: theAddedBackend },
    run: async (input, { repositories }) => {
      const place = placeOf(input);
      if (!(await repositories.removeBackend(place)))
        throw new OperationError('There is no such server.', { cause: new StoreError('not_found', 'no such server') });
      return place;
    },
  }),
};

function placeOf({ model, source, url }: { readonly model: string; readonly source: string; readonly url: string }) {
  const checked = serverUrlOf(url);
  if ('problem' in checked) throw new OperationError(`The url cannot be used: ${checked.problem}.`);
  return { modelId: checkedModel(model), source: checkedText(source, 'The name of a source', 64), url: checked.url };
}
