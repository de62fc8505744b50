/** DuckDB reads what the service exports as Parquet, and adds up to the same as the exports in text. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { InnerService } from '../../support/service.ts';

const python = process.env['PYTHON_OF_CLIENTS'];
assert.ok(python, 'PYTHON_OF_CLIENTS is not set: run npm run suite python');

const service = new InnerService({
  config: `
models:
  - id: scripted-model
    context_length: 4096
    pricing: { input_cents_per_million: 100, output_cents_per_million: 400 }
    backends: [{ engine: scripted, scripts: [{ say: [{ text: hello there }] }] }]
`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

/** What DuckDB answers to a query, `FILE` being the file. */
function query(file: string, sql: string): unknown {
  const program =
    "import duckdb, json, sys; print(json.dumps(duckdb.sql(sys.argv[1]).fetchall(), default=lambda value: value.isoformat() if hasattr(value, 'isoformat') else int(value)))";
  const text = execFileSync(python ?? '', ['-c', program, sql.replaceAll('FILE', `'${file}'`)], { encoding: 'utf8' });
  return JSON.parse(text);
}

const sums = 'count(*), sum(tokens_prompt), sum(tokens_completion), sum(cost_microcents), sum(refunded_microcents)';

test('requests of all accounts in one file, and those of one by the API', async () => {
  const other = JSON.parse(
    (await service.command('accounts', 'create', 'Other', '--credit', '5', '--key', '--json')).stdout,
  ) as { readonly id: string; readonly key: { readonly key: string } };
  for (let index = 0; index < 7; index++) {
    const answer = await service.chat(
      { model: 'scripted-model', messages: [{ role: 'user', content: `number ${index}` }] },
      ...(index < 3 ? [{ key: other.key.key }] : []),
    );
    assert.equal(answer.status, 200, await answer.text());
  }
  const file = join(service.folder, 'usage.parquet');
  const written = await service.command('usage', '--parquet', file);
  assert.equal(written.code, 0, written.stderr);
  const again = await service.command('usage', '--parquet', file);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /is there already/);
  assert.deepEqual(query(file, 'select count(distinct account_id), count(*) from FILE'), [[2, 7]]);
  assert.deepEqual(query(file, `select count(*) from FILE where account_id = '${other.id}'`), [[3]]);
  assert.deepEqual(
    query(file, 'select typeof(started_at_utc), typeof(streamed), typeof(cost_microcents) from FILE limit 1'),
    [['TIMESTAMP', 'BOOLEAN', 'BIGINT']],
  );
  const [first] = query(file, `select account_id from FILE where account_id <> '${other.id}' limit 1`) as [string][];
  for (const accountId of [other.id, first![0]]) {
    const made = await service.command('keys', 'create', '--account', accountId, '--role', 'admin');
    const whose = made.stdout.trim();
    const get = async (path: string) => {
      const response = await fetch(`${service.accountUrl}${path}`, { headers: { authorization: `Bearer ${whose}` } });
      assert.equal(response.status, 200, path);
      return Buffer.from(await response.arrayBuffer());
    };
    const { totals } = JSON.parse(String(await get('/v1/export/generations.json'))) as {
      readonly totals: Readonly<Record<string, number>>;
    };
    const own = join(service.folder, `${whose.slice(-6)}.parquet`);
    writeFileSync(own, await get('/v1/export/generations.parquet'));
    assert.deepEqual(query(own, `select ${sums} from FILE`), [
      [
        totals['rows'],
        totals['tokens_prompt'],
        totals['tokens_completion'],
        totals['cost_microcents'],
        totals['refunded_microcents'],
      ],
    ]);
  }
});
