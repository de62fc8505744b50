/** What operators add while the service runs, and remove. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';

import { TestService, until, type TestServiceOptions } from '../../support/service.ts';
import { report } from '../../support/workers.ts';
import { answeredBy, modelOf, request, serversFor, type Server } from './scene.ts';

const fromApi = modelOf('{ engine: openai, name: gpu, flavor: vllm, discover: { by: api } }');

/** What an operator adds is in use by all processes, and after a restart; what is removed is drained. */
export async function addAndRemove(
  t: TestContext,
  options: Pick<TestServiceOptions, 'workers' | 'database'> = {},
): Promise<void> {
  const servers = await serversFor(t, 'a', 'b');
  const [a, b] = servers as [Server, Server];
  const service = new TestService({ config: fromApi, ...options });
  t.after(() => service.dispose());
  await service.start();
  const { key } = await report(service, {
    ...{ kind: 'create_key', accountId: service.accountId, name: 'fleet', expiresAt: undefined },
    ...{ role: 'owner', isOperator: true },
  });
  const admin = async (method: string, path: string, json?: object) => {
    const answer = await fetch(service.accountUrl + path, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  assert.equal((await service.chat(request)).status, 503);
  const added = await admin('POST', '/v1/admin/backends', { model: 'M', url: `${a.url}/`, weight: 2 });
  assert.deepEqual(
    [added.status, added.body],
    [201, { object: 'added_backend', model: 'm', source: 'gpu', url: a.url, rank: null, weight: 2 }],
  );
  await until(async () => (await service.chat(request)).status === 200);
  // Of two that have nothing to do, the heavier one takes everything.
  assert.equal((await admin('POST', '/v1/admin/backends', { model: 'm', url: a.url })).body['weight'], null);
  assert.equal((await admin('POST', '/v1/admin/backends', { model: 'm', url: b.url })).status, 201);
  await until(async () => (await answeredBy(service)) === 'b');
  const sources = await admin('GET', '/v1/admin/backend_sources');
  const [source] = sources.body['data'] as Record<string, unknown>[];
  assert.deepEqual(
    { ...source, last_read_at: 0 },
    {
      ...{ object: 'backend_source', model: 'm', name: 'gpu', by: 'api' },
      ...{ listed: 2, in_use: 2, problem: null, last_read_at: 0 },
    },
  );
  for (const [json, words] of [
    [{ model: 'm', url: 'http://169.254.169.254/v1' }, /no server can have/],
    [{ model: 'm', url: 'http://u:p@10.0.0.1/v1' }, /name, password/],
    [{ model: 'none', url: b.url }, /no model of this id/],
    [{ model: 'm', url: b.url, source: 'other' }, /Name the source: gpu/],
    [{ model: 'm', url: b.url, weight: 0 }, /weight/],
  ] as const) {
    const refused = await admin('POST', '/v1/admin/backends', json);
    assert.ok([400, 422].includes(refused.status), JSON.stringify(refused));
    assert.match(JSON.stringify(refused.body), words);
  }
  await service.stop();
  await service.start();
  await until(async () => (await answeredBy(service)) === 'b');
  const { status } = await admin('DELETE', `/v1/admin/backends?model=m&url=${encodeURIComponent(b.url)}`);
  assert.equal(status, 200);
  await until(() => b.upstream.open === 0);
  for (let count = 0; count < 10; count++) assert.equal(await answeredBy(service), 'a');
  assert.equal((await admin('DELETE', `/v1/admin/backends?model=m&url=${encodeURIComponent(b.url)}`)).status, 404);
  const audit = await admin('GET', '/v1/admin/audit?action=backend.add&action=backend.remove');
  const outcomes = (audit.body['data'] as Record<string, unknown>[]).map(
    ({ action, outcome }) => `${action} ${outcome}`,
  );
  assert.ok(outcomes.includes('backend.remove done') && outcomes.includes('backend.add done'), outcomes.join());
  const { stdout } = await service.command('doctor');
  assert.match(stdout, /^ok +source +m · gpu · api · 1 servers, 1 of them in use$/m);
  await service.stop();
  const alone = await service.command('doctor');
  assert.match(alone.stdout, /^ok +source +m · gpu · api · 1 servers, 1 of them in use$/m);
}
