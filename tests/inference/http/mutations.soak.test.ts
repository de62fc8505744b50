import { after, before, test } from 'node:test';

import { TestService, scriptedModel } from '../../support/service.ts';
import { assertMutationsHarmless } from './mutations.ts';

const service = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

test('100,000 mutated requests: no hang, no crash, no answer without the envelope', async (context) => {
  for (let from = 0; from < 100_000; from += 10_000) {
    const { statuses, milliseconds } = await assertMutationsHarmless(service, { from, count: 10_000, seed: 1 });
    const counts = [...statuses].toSorted(([a], [b]) => a - b).map(([status, count]) => `${status}: ${count}`);
    context.diagnostic(`${from + 10_000} in ${Math.round(milliseconds)} ms: ${counts.join(', ')}`);
  }
});
