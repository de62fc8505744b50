import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { InnerService, scriptedModel } from '../../support/service.ts';
import { assertMutationsHarmless } from './mutations.ts';

/** A slice of the mutations of each run; `mutations.soak.test.ts` has all. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

test('10,000 mutated requests: no hang, no crash, no answer without the envelope', async () => {
  const { statuses } = await assertMutationsHarmless(service, { from: 0, count: 10_000, seed: 1 });
  // All kinds of ends are among them, or the mutations would be too wild or too tame.
  for (const status of [200, 400, 401, 405, 431, 505]) assert.ok((statuses.get(status) ?? 0) > 0, `no ${status}`);
});
