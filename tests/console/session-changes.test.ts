/** A session that is replaced while other requests are under way. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { acrossSessionChanges } from '../../web/src/api/session-changes.ts';

/** A server with one session, and a browser that sends the cookie it has when it sends. Each answer waits until it is let go. */
function browserAndServer() {
  const state = { cookie: 'old', session: 'old' };
  const sent: { readonly path: string; readonly answer: () => void; readonly fail: () => void }[] = [];
  const ask = acrossSessionChanges(
    (request) =>
      new Promise((resolve, reject) => {
        const { pathname: path } = new URL(request.url);
        const cookie = state.cookie;
        const answer = (): void => {
          if (request.method === 'POST' && path.endsWith('/verify')) state.cookie = state.session;
          resolve(new Response(null, { status: cookie === state.session || request.method === 'POST' ? 200 : 401 }));
        };
        sent.push({ path, answer, fail: () => reject(new TypeError('no network')) });
      }),
  );
  const get = (signal?: AbortSignal) => ask(new Request('http://a/v1/me', signal === undefined ? {} : { signal }));
  const post = (path: string) => ask(new Request(`http://a${path}`, { method: 'POST', body: '{}' }));
  return { state, sent, get, post };
}

/** All that is ready to run has run. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const verify = '/v1/auth/two-factor/verify';

for (const { what, order } of [
  { what: 'before the change is answered', order: ['read', 'change'] },
  { what: 'after the change is answered', order: ['change', 'read'] },
])
  for (const first of ['read', 'change'])
    test(`a read sent with the session before, ${first} first, refused ${what}, is asked again with the new one`, async () => {
      const { state, sent, get, post } = browserAndServer();
      const ask = { read: () => get(), change: () => post(verify) };
      const begun = { [first]: ask[first as 'read']() };
      const second = first === 'read' ? 'change' : 'read';
      begun[second] = ask[second]();
      state.session = 'new';
      for (const each of order) {
        sent[each === first ? 0 : 1]!.answer();
        await turn();
      }
      assert.equal(sent.length, 3, 'asked again once');
      sent[2]!.answer();
      assert.equal((await begun['read']!).status, 200);
      assert.equal((await begun['change']!).status, 200);
    });

test('a session that has ended is told at once, and after one more try when a change was under way', async () => {
  const { state, sent, get, post } = browserAndServer();
  state.session = 'none';
  const alone = get();
  sent[0]!.answer();
  assert.equal((await alone).status, 401);
  assert.equal(sent.length, 1);

  const changing = post('/v1/auth/sign-out');
  const during = get();
  sent[1]!.answer();
  await changing;
  sent[2]!.answer();
  await turn();
  sent[3]!.answer();
  assert.equal((await during).status, 401);
  assert.equal(sent.length, 4);
});

test('a change that fails, or a reader who leaves, ends the wait; other writes are never sent twice', async () => {
  const { state, sent, get, post } = browserAndServer();
  state.session = 'none';
  const changing = post(verify);
  const leaving = new AbortController();
  const [left, stayed] = [get(leaving.signal), get()];
  void post('/v1/keys');
  for (const each of sent.slice(1)) each.answer();
  await turn();
  assert.equal(sent.length, 4, 'both wait');
  leaving.abort();
  await turn();
  assert.equal(sent.length, 5);
  sent[0]!.fail();
  await assert.rejects(changing, /no network/);
  await turn();
  assert.equal(sent.length, 6);
  for (const each of sent.slice(4)) each.answer();
  assert.deepEqual([(await left).status, (await stayed).status], [401, 401]);
});
