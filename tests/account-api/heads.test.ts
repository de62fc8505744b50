/** From a request to its proof, over the account API and the command line. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { headsPage } from '../../src/account-api/pages.ts';
import { headRoutes } from '../../src/account-api/routes/heads.ts';
import { operate } from '../../src/accounts/operations.ts';
import { UsageHeads } from '../../src/app/usage-heads.ts';
import { uuidText } from '../../src/platform/ids/uuid.ts';
import { grant, temporaryFolder, usage } from '../store/fixture.ts';
import { runCommand } from '../support/command.ts';
import { openHost } from './host.ts';

test('a proof is there when its day is complete, and is checked with the published heads and nothing else', async (t) => {
  let now = Date.parse('2026-11-28T22:00:00Z');
  const host = await openHost(t, headRoutes, () => now);
  const { operations } = host.services;
  for (const id of ['acct_a', 'acct_b']) {
    await host.account(id);
    await operations.ledger.transfer(grant(id, 10n ** 12n));
  }
  const [key, other, viewer] = [
    await host.key('acct_a', 'owner'),
    await host.key('acct_b', 'owner'),
    await host.key('acct_a', 'viewer'),
  ];
  const heads = new UsageHeads(operations);
  await heads.run(Infinity);
  const row = usage('acct_a', 1234n, { startedAt: now - 100, endedAt: now });
  assert.equal(await operations.ledger.settle(row), 'billed');
  const path = `/v1/generation/proof?id=${uuidText(row.requestId)}`;
  const early = await host.ask('GET', path, { key });
  assert.equal(early.status, 409);
  assert.match(early.body, /there is a proof after 2026-11-29T01:00:00.000Z/);
  now = Date.parse('2026-11-29T01:00:00Z');
  await heads.run(Infinity);
  const proof = await host.ask('GET', path, { key });
  assert.equal(proof.status, 200, proof.body);
  assert.equal((await host.ask('GET', path, { key: other })).status, 404);
  assert.equal((await host.ask('GET', path)).status, 401);
  assert.equal((await host.ask('GET', path, { key: viewer })).status, 404, 'a key that is not a viewer’s own');

  const { id } = await operate({ kind: 'rotate_signing_key' }, operations);
  const list = await host.ask('GET', '/v1/heads?limit=1');
  const listed = JSON.parse(list.body) as { data: object[]; keys: { id: string }[]; next_after: string };
  assert.equal(listed.data.length, 1);
  assert.equal(listed.keys.at(-1)!.id, id);
  assert.equal(listed.next_after, '2026-11-28');
  const earlier = await host.ask('GET', `/v1/heads?after=${listed.next_after}`);
  assert.equal((JSON.parse(earlier.body) as { data: object[] }).data.length, 1);
  const head = await host.ask('GET', '/v1/heads/2026-11-28');
  assert.deepEqual(JSON.parse(head.body), listed.data[0]);
  assert.equal((await host.ask('GET', '/v1/heads/2026-11-29')).status, 404);
  assert.equal((await host.ask('GET', '/v1/heads/2026-13-40')).status, 404);

  const folder = temporaryFolder(t);
  const write = (name: string, text: string): void => writeFileSync(join(folder, name), text);
  write('proof.json', proof.body);
  write('heads.json', list.body);
  write('head.json', head.body);
  write('other.json', head.body.replace('"root":"', '"root":"0').replace(/("root":"\w{64})\w/, '$1'));
  write('changed.json', proof.body.replace('"cost":"1234"', '"cost":"1233"'));
  const verify = (...args: string[]) => runCommand(folder, ['verify', 'receipt', ...args]);
  const good = await verify('proof.json', '--key', 'heads.json', '--head', 'heads.json');
  assert.equal(good.code, 0, good.stderr);
  assert.match(good.stdout, /1,?234 prompt tokens.*was charged \$0\.00001234/);
  assert.match(good.stdout, /It agrees with what you gave/);
  assert.equal((await verify('proof.json', '--head', 'head.json')).code, 0);
  assert.match((await verify('proof.json')).stdout, /Compare the key with the published one/);
  for (const [args, why] of [
    [['changed.json'], /Nothing is proved: request or request_path was changed/],
    [['proof.json', '--head', 'other.json'], /two heads of one day/],
  ] as const) {
    const bad = await verify(...args);
    assert.equal(bad.code, 1);
    assert.match(bad.stdout, why);
  }
});

test('the page of signed days shows what the API lists, a page at a time, and nothing but text', async (t) => {
  let now = Date.parse('2026-11-01T01:00:00Z');
  const host = await openHost(t, headRoutes, () => now);
  const { operations } = host.services;
  const get = async (path: string) => {
    const answer = await host.ask('GET', path);
    assert.equal(answer.status, 200, answer.body);
    return answer;
  };
  const empty = await get('/heads');
  assert.match(empty.body, /No day is signed yet\./);
  assert.doesNotMatch(empty.body, /Public keys|Earlier days/);

  const heads = new UsageHeads(operations);
  await heads.run(Infinity);
  await operate({ kind: 'rotate_signing_key' }, operations);
  now += 22 * 86_400_000;
  await heads.run(Infinity);
  const all = JSON.parse((await get('/v1/heads?limit=100')).body) as {
    data: Record<'date' | 'root' | 'previous' | 'key_id' | 'signature', string | null>[];
    keys: { id: string; public_key: string }[];
  };
  assert.equal(all.data.length, 23);
  const first = await get('/heads');
  const datesIn = (html: string) =>
    [...html.matchAll(/<h2><a href="\/v1\/heads\/([\d-]+)">\1</g)].map(([, date]) => date);
  assert.deepEqual(
    datesIn(first.body),
    all.data.slice(0, 20).map(({ date }) => date),
  );
  const [, next] = /href="(\/heads\?after=[\d-]+)">Earlier days/.exec(first.body)!;
  const last = await get(next!);
  assert.deepEqual(
    datesIn(last.body),
    all.data.slice(20).map(({ date }) => date),
  );
  assert.doesNotMatch(last.body, /Earlier days/);
  assert.match(last.body, /href="\/heads">Newest days/);
  assert.match(last.body, /None: this is the first signed day/);
  const both = first.body + last.body;
  for (const { root, previous, key_id, signature } of all.data)
    for (const value of [root, previous, key_id, signature])
      if (value !== null) assert.ok(both.includes(`<code>${value}</code>`), value);
  assert.ok(first.body.includes(`<code>${new Date(now).toISOString()}</code>`));
  for (const body of [first.body, last.body])
    for (const { id, public_key: key } of all.keys)
      assert.ok(body.includes(`<dt><code>${id}</code></dt><dd><code>${key}</code></dd>`), id);
  const json = /href="(\/v1\/heads[^"/]*)">This page as JSON/.exec(last.body)![1]!;
  assert.deepEqual((JSON.parse((await get(json)).body) as typeof all).data, all.data.slice(20));
  assert.match((await get('/heads?after=2026-10-31')).body, /No earlier day is signed\./);

  assert.equal(first.headers['content-type'], 'text/html; charset=utf-8');
  assert.match(
    String(first.headers['content-security-policy']),
    /^default-src 'none'; style-src 'unsafe-inline'; frame/,
  );
  assert.doesNotMatch(first.body, /<script|src=|\son\w+=/);
  for (const query of ['after=%3Cscript%3E', 'after=2026-13-40', 'limit=5']) {
    const refused = await host.ask('GET', `/heads?${query}`);
    assert.ok(refused.status >= 400 && refused.status < 500, refused.body);
    assert.doesNotMatch(refused.body, /<script/);
  }
  assert.equal((await host.ask('POST', '/heads')).status, 405);
});

test('the page escapes all that it is given', () => {
  const bad = `"><script>'&`;
  const head = { date: bad, root: bad, previous: bad, key_id: bad, signed_at: '0', signature: bad };
  const html = headsPage({ data: [head], next_after: bad, keys: [{ id: bad, public_key: bad }] }, bad);
  assert.doesNotMatch(html, /"><script|'&(?!\w+;)/);
  assert.equal(html.split('&quot;&gt;&lt;script&gt;&#39;&amp;').length - 1, 10);
});
