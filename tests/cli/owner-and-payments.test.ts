/** The owner, the outbox and payments from the command line, beside a running service and without one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { noFeatures, scriptedModel, TestService, until } from '../support/service.ts';
import { totp } from '../support/totp.ts';
import { owner, Visitor } from '../support/visitor.ts';
import { jsonOf, runCommand } from './command.ts';

const config = scriptedModel('- { say: [{ text: "one" }] }', { settings: noFeatures });

async function start(t: { after(close: () => Promise<void>): void }): Promise<{
  readonly service: TestService;
  readonly run: (...args: string[]) => ReturnType<typeof runCommand>;
}> {
  const service = new TestService({ config, firstCreditCents: '0' });
  t.after(() => service.dispose());
  await service.start();
  return { service, run: (...args) => runCommand(service.folder, args) };
}

const linkOf = (stdout: string): string => /\/welcome#([\w-]{43})$/m.exec(stdout)?.[1] ?? assert.fail(stdout);

test('a link of the owner is printed anew, the one before is dead, and after its use there is none', async (t) => {
  const { service, run } = await start(t);
  const first = await run('owner', 'link');
  assert.equal(first.code, 0, first.stderr);
  assert.ok(first.stdout.startsWith(service.accountUrl), first.stdout);
  assert.match(first.stderr, /works once, within 30 minutes/);
  const second = jsonOf(await run('owner', 'link', '--json')) as { readonly url: string; readonly expires_at: string };
  assert.ok(Math.abs(Date.parse(second.expires_at) - Date.now() - 30 * 60_000) < 10 * 60_000, second.expires_at);

  const browser = new Visitor(service);
  const open = (token: string) => browser.ask('POST', '/v1/owner', { ...owner, token });
  assert.equal((await open(linkOf(first.stdout))).status, 404);
  assert.equal((await open(linkOf(second.url))).status, 200);
  assert.equal((await open(linkOf(second.url))).status, 404);
  assert.equal((await browser.get('/v1/me')).is_operator, true);
  for (const secret of [linkOf(first.stdout), linkOf(second.url), owner.password])
    assert.ok(!JSON.stringify(service.log).includes(secret), 'not in the log');
});

test('owner create gives a password that signs in, and ends the sessions of the one before', async (t) => {
  const { service, run } = await start(t);
  const create = async () => {
    const reported = await run('owner', 'create', '--email', 'Olga@Example.org', '--name', 'Olga', '--json');
    return jsonOf(reported) as { readonly user_id: string; readonly email: string; readonly password: string };
  };
  const first = await create();
  assert.equal(first.email, 'olga@example.org');
  const signIn = async (password: string) => {
    const browser = new Visitor(service);
    const { status } = await browser.ask('POST', '/v1/auth/sign-in', { email: first.email, password });
    return { browser, status };
  };
  const { browser, status } = await signIn(first.password);
  assert.equal(status, 200);
  assert.deepEqual((await browser.get('/v1/me')).accounts.length, 1);

  await service.stop();
  const second = await create();
  assert.equal(second.user_id, first.user_id, 'the same person');
  await service.start();
  assert.equal((await signIn(first.password)).status, 401);
  assert.equal((await signIn(second.password)).status, 200);
  assert.equal((await browser.ask('GET', '/v1/me')).status, 401, 'the session of before is over');
  assert.equal((await run('owner', 'create', '--email', 'no address')).code, 1);
  assert.equal((await run('owner', 'create')).code, 64);
  for (const secret of [first.password, second.password]) assert.ok(!service.output.includes(secret));
});

test('an owner who has lost codes and passkeys signs in with the password again, and is notified', async (t) => {
  const { service, run } = await start(t);
  const made = await run('owner', 'create', '--email', 'olga@example.org', '--json');
  const { password } = jsonOf(made) as { readonly password: string };
  const signIn = async () => {
    const browser = new Visitor(service);
    const { status, body } = await browser.ask('POST', '/v1/auth/sign-in', { email: 'olga@example.org', password });
    assert.equal(status, 200);
    return { browser, twoFactor: body.two_factor_required as boolean };
  };
  const { browser } = await signIn();
  const { totp_uri: uri } = (await browser.ask('POST', '/v1/auth/two-factor', { password })).body;
  const code = totp(new URL(uri as string).searchParams.get('secret')!);
  assert.equal((await browser.ask('POST', '/v1/auth/two-factor/verify', { code })).status, 200);
  assert.equal((await signIn()).twoFactor, true);

  const released = jsonOf(await run('people', 'release', 'Olga@example.org', '--json')) as Record<string, unknown>;
  const { id, ...removed } = released;
  assert.deepEqual(removed, {
    object: 'person.released',
    email: 'olga@example.org',
    had_two_factor: true,
    passkeys: 0,
    sessions: 1,
  });
  assert.equal((await browser.ask('GET', '/v1/me')).status, 401);
  const again = await signIn();
  assert.equal(again.twoFactor, false);
  const mails = (await run('mail', 'list')).stdout;
  assert.match(mails, /released.*olga@example\.org|olga@example\.org.*released/);

  // The same over the API, for the operator of the server.
  const release = (email: string) => again.browser.ask('POST', '/v1/admin/people/release', { email });
  assert.equal((await release('nobody@example.org')).status, 404);
  const { status, body } = await release('olga@example.org');
  assert.deepEqual([status, body.id, body.had_two_factor, body.sessions], [200, id, false, 1]);
  assert.equal((await release('olga@example.org')).status, 401, 'with their own session');
  const unknown = await run('people', 'release', 'nobody@example.org');
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /No person here has the address nobody@example\.org/);
  const { browser: last } = await signIn();
  const logged = (await last.get('/v1/admin/audit?action=person.release')).data as {
    outcome: string;
    target: string | null;
    after: unknown;
  }[];
  assert.deepEqual(
    logged.map(({ outcome, target }) => [outcome, target]),
    [
      ['refused', null],
      ['done', id],
      ['refused', null],
      ['done', id],
    ],
  );
  assert.deepEqual(logged.at(-1)!.after, { user_id: id, had_two_factor: true, passkeys: 0, sessions: 1 });
});

test('mails that nobody sends are listed, and shown with their text', async (t) => {
  const { service, run } = await start(t);
  const person = new Visitor(service);
  await person.becomeOwner();
  const invited = await person.ask('POST', '/v1/invites', { email: 'new@example.org', role: 'viewer' });
  assert.equal(invited.status, 200, JSON.stringify(invited.body));
  interface Mail {
    readonly id: string;
    readonly to: string;
    readonly kind: string;
    readonly state: string;
    readonly text?: string;
  }
  let mails: readonly Mail[] = [];
  await until(async () => {
    mails = jsonOf(await run('mail', 'list', '--json')) as Mail[];
    return mails.length === 1;
  }, 60_000);
  assert.deepEqual([mails[0]!.to, mails[0]!.kind, mails[0]!.text], ['new@example.org', 'invitation', undefined]);
  const shown = await run('mail', 'show', mails[0]!.id);
  assert.match(shown.stdout, /^To: new@example\.org\n(.*\n)*Subject: .+\n\n[^]*https?:\/\/\S+#[\w-]{43}/);
  assert.match((jsonOf(await run('mail', 'show', mails[0]!.id, '--json')) as Mail).text!, /#[\w-]{43}/);
  await service.stop();
  assert.equal((await run('mail', 'show', mails[0]!.id)).stdout, shown.stdout, 'without the service too');
  const missing = await run('mail', 'show', 'mail_none');
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /no mail mail_none.*tokenhouse mail list/);
  assert.equal((await run('mail', 'list', '--limit', '0')).code, 64);
});

test('payments are listed and played: paid once, paid back, and failed', async (t) => {
  const { service, run } = await start(t);
  const person = new Visitor(service);
  await person.becomeOwner();
  interface Topup {
    readonly id: string;
    readonly microcents: number;
    readonly status: string;
    readonly checkout_url: string | null;
  }
  const ask = async (cents: number): Promise<string> => {
    const made = await person.ask('POST', '/v1/credits/topups', { amount_cents: cents });
    assert.equal(made.status, 201, JSON.stringify(made.body));
    return made.body.id as string;
  };
  const topups = async () => jsonOf(await run('credits', 'topups', '--json')) as Topup[];
  const stateOf = async (id: string) => (await topups()).find((topup) => topup.id === id)?.status;
  const play = async (id: string, outcome: string, status: string) => {
    const played = await run('pay', 'simulate', id, '--outcome', outcome);
    assert.equal(played.code, 0, played.stderr);
    await until(async () => (await stateOf(id)) === status, 60_000);
  };

  const [paid, failed] = [await ask(700), await ask(900)];
  const pending = (await topups())[1]!;
  assert.deepEqual([pending.id, pending.microcents, pending.status], [paid, 700_000_000, 'pending']);
  assert.ok(pending.checkout_url?.startsWith(service.accountUrl));
  // Told of twice.
  await play(paid, 'duplicate', 'paid');
  await play(failed, 'failure', 'failed');
  assert.equal((await person.get('/v1/credits')).balance_microcents, 700_000_000);
  assert.match((await run('credits', 'topups')).stdout, new RegExp(`${paid}.*paid`));
  await play(paid, 'refund', 'refunded');
  assert.equal((await person.get('/v1/credits')).balance_microcents, 0);

  const unknown = await run('pay', 'simulate', 'top_none');
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /no top-up top_none.*tokenhouse credits topups/);
  assert.equal((await run('pay', 'simulate', paid, '--outcome', 'jackpot')).code, 64);
  await service.stop();
  assert.equal((await topups()).length, 2, 'a list needs no service');
  const alone = await run('pay', 'simulate', failed);
  assert.equal(alone.code, 1);
  assert.match(alone.stderr, /No service is running on this data folder.*tokenhouse serve/);
  await service.verify();
});
