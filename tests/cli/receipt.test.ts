import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { dollars } from '../../src/platform/dollars.ts';
import { InnerService } from '../support/service.ts';

const config = `
models:
  - id: scripted-model
    context_length: 4096
    pricing: { input_cents_per_million: 100, output_cents_per_million: 400 }
    backends: [{ engine: scripted, scripts: [{ say: [{ text: hello there }] }] }]
`;
const service = new InnerService({ config });
before(async () => void (await service.start()));
after(() => service.dispose());

test('explain prints the receipt of a request, and usage --csv all of them with their sum', async () => {
  const answer = await service.chat({ model: 'scripted-model', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(answer.status, 200, await answer.clone().text());
  const id = answer.headers.get('x-request-id')!;
  const { code, stdout, stderr } = await service.command('explain', id);
  assert.equal(code, 0, stderr);
  for (const words of [
    `${id} · scripted-model · chat · whole`,
    'end      finished, stop',
    'why      The answer is complete',
  ])
    assert.ok(stdout.includes(words), stdout);
  const receipt = JSON.parse((await service.command('explain', '--json', id)).stdout) as Record<string, unknown>;
  assert.equal(receipt['zdr'], false);
  assert.ok(Number(receipt['total_cost_microcents']) > 0);
  assert.match(
    stdout,
    new RegExp(`^charge   ${dollars(BigInt(Number(receipt['total_cost_microcents']))).replace(/[$.]/g, '\\$&')}$`, 'm'),
  );
  const [header, row, footer, end] = (await service.command('usage', '--csv')).stdout.split('\r\n');
  assert.ok(header!.startsWith('id,request_id,'));
  assert.ok(row!.startsWith(`${String(receipt['id'])},${id},`));
  assert.match(footer!, new RegExp(`^total,.*,${String(receipt['total_cost_microcents'])},0,0,,,,,$`));
  assert.equal(end, '');
  const none = await service.command('explain', 'req_000000000000');
  assert.equal(none.code, 1);
  assert.match(none.stderr, /has no request req_000000000000/);
});
