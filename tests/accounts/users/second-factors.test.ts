import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { test } from 'node:test';

import { userRoutes } from '../../../src/account-api/routes/users.ts';
import { secondFactorRoutes } from '../../../src/account-api/routes/second-factors.ts';
import { openHost } from '../../account-api/host.ts';
import { totp } from '../../support/totp.ts';
import { Browser, password, person } from './person.ts';

const routes = [...userRoutes, ...secondFactorRoutes];
const open = { signIn: { signUp: 'open', oidc: [] } } as const;
const session = 'tokenhouse.session_token';

test('with codes set up, a password alone opens nothing; each backup code works once', async (t) => {
  const host = await openHost(t, routes, Date.now, open);
  await person(host, 'ada@example.org');
  const [browser, other] = [new Browser(host), new Browser(host)];
  await browser.signIn('ada@example.org', password);
  assert.equal((await browser.ask('POST', '/v1/auth/two-factor', { password: 'wrong password' })).status, 401);
  const begun = await browser.ask('POST', '/v1/auth/two-factor', { password });
  assert.equal(begun.status, 200, JSON.stringify(begun.body));
  const secret = new URL(begun.body['totp_uri'] as string).searchParams.get('secret')!;
  const codes = begun.body['backup_codes'] as string[];
  assert.equal(
    (await other.signIn('ada@example.org', password))['two_factor_required'],
    false,
    'not before it is proved',
  );

  const isOn = async (): Promise<unknown> => (await browser.ask('GET', '/v1/me')).body['two_factor_enabled'];
  assert.equal(await isOn(), false);
  const before = browser.cookies.get(session);
  assert.equal((await browser.ask('POST', '/v1/auth/two-factor/verify', { code: wrongCode(secret) })).status, 401);
  const proved = await browser.ask('POST', '/v1/auth/two-factor/verify', { code: totp(secret) });
  assert.equal(proved.status, 200, JSON.stringify(proved.body));
  assert.notEqual(browser.cookies.get(session), before, 'who can do more has a new session');
  assert.equal(await isOn(), true);

  const signIn = async (): Promise<Browser> => {
    const fresh = new Browser(host);
    assert.equal((await fresh.signIn('ada@example.org', password))['two_factor_required'], true);
    assert.equal(fresh.cookies.has(session), false);
    assert.equal((await fresh.ask('GET', '/v1/me')).status, 401);
    return fresh;
  };
  const fresh = await signIn();
  assert.equal((await fresh.ask('POST', '/v1/auth/two-factor/verify', { code: wrongCode(secret) })).status, 401);
  assert.equal((await fresh.ask('POST', '/v1/auth/two-factor/verify', { code: totp(secret) })).status, 200);
  assert.equal((await fresh.ask('GET', '/v1/me')).status, 200);
  const backup = await signIn();
  assert.equal((await backup.ask('POST', '/v1/auth/two-factor/verify', { backup_code: codes[0] })).status, 200);
  const again = await signIn();
  assert.equal((await again.ask('POST', '/v1/auth/two-factor/verify', { backup_code: codes[0] })).status, 401);
  // A code without a sign-in before it proves nothing.
  assert.equal((await new Browser(host).ask('POST', '/v1/auth/two-factor/verify', { code: totp(secret) })).status, 401);

  const renewed = await fresh.ask('POST', '/v1/auth/two-factor/backup-codes', { password });
  assert.equal((await again.ask('POST', '/v1/auth/two-factor/verify', { backup_code: codes[1] })).status, 401);
  assert.equal(renewed.body['backup_codes'].length, codes.length);
  assert.equal((await fresh.ask('POST', '/v1/auth/two-factor/disable', { password })).status, 200);
  assert.equal((await new Browser(host).signIn('ada@example.org', password))['two_factor_required'], false);
  assert.equal((await fresh.ask('GET', '/v1/me')).body['two_factor_enabled'], false);
  assert.equal((await browser.ask('GET', '/v1/me')).status, 401, 'its session began under other rules');
  const logged = await host.services.operations.repositories.listAudit({ limit: 100 });
  assert.deepEqual(
    logged.flatMap(({ action, actor }) => (action.startsWith('two_factor.') ? [[action, actor.name]] : [])).reverse(),
    ['begin', 'enable', 'backup_codes', 'disable'].map((what) => [`two_factor.${what}`, 'ada@example.org']),
  );

  // Neither the secret nor the codes can be read out of the database.
  const { rows } = await host.services.operations.repositories.authStore({
    act: 'find',
    table: 'auth_two_factor',
    where: [],
    limit: 10,
  });
  assert.ok(!JSON.stringify(rows).includes(secret));
});

test('a passkey signs in, when its holder was checked, and is its owner’s alone', async (t) => {
  const host = await openHost(t, routes, Date.now, open);
  await person(host, 'ada@example.org');
  await person(host, 'eve@example.org');
  const browser = new Browser(host);
  await browser.signIn('ada@example.org', password);
  const { body: options } = await browser.ask('POST', '/v1/auth/passkeys/options');
  const device = new Authenticator(host.url);
  const made = await browser.ask('POST', '/v1/auth/passkeys', {
    name: 'laptop',
    credential: device.register(options['challenge'] as string),
  });
  assert.equal(made.status, 200, JSON.stringify(made.body));
  assert.equal((await browser.ask('GET', '/v1/auth/passkeys')).body['data'][0].name, 'laptop');

  const fresh = new Browser(host);
  const begin = async () => (await fresh.ask('POST', '/v1/auth/sign-in/passkey/options')).body['challenge'] as string;
  const signIn = (credential: object) => fresh.ask('POST', '/v1/auth/sign-in/passkey', { credential });
  const first = device.prove(await begin());
  const signedIn = await signIn(first);
  assert.equal(signedIn.status, 200, JSON.stringify(signedIn.body));
  assert.equal((await fresh.ask('GET', '/v1/me')).body['email'], 'ada@example.org');
  assert.notEqual((await signIn(first)).status, 200, 'a challenge is used once');
  assert.notEqual((await signIn(device.prove('A'.repeat(43)))).status, 200, 'one that was not ours');
  await begin();
  assert.notEqual((await signIn(first)).status, 200, 'an old answer to a new challenge');
  assert.equal((await signIn(device.prove(await begin(), { isChecked: false }))).status, 401);
  const stranger = new Authenticator(host.url, device.id);
  assert.notEqual((await signIn(stranger.prove(await begin()))).status, 200, 'signed by another key');
  const elsewhere = new Authenticator('https://evil.example', device.id, device.key);
  assert.notEqual((await signIn(elsewhere.prove(await begin()))).status, 200, 'made for another site');

  const eve = new Browser(host);
  await eve.signIn('eve@example.org', password);
  assert.equal((await eve.ask('DELETE', `/v1/auth/passkeys/${made.body['id']}`)).status, 404);
  assert.equal((await browser.ask('DELETE', `/v1/auth/passkeys/${made.body['id']}`)).status, 200);
  assert.notEqual((await signIn(device.prove(await begin()))).status, 200);

  // With neither a password nor a provider, one passkey stays.
  const { body: further } = await browser.ask('POST', '/v1/auth/passkeys/options');
  const only = new Authenticator(host.url);
  const credential = only.register(further['challenge'] as string);
  const { id } = (await browser.ask('POST', '/v1/auth/passkeys', { credential })).body;
  const { repositories } = host.services.operations;
  const { id: userId } = (await browser.ask('GET', '/v1/me')).body;
  const where = [{ column: 'userId', operator: 'eq', value: userId, connector: 'AND' }] as const;
  await repositories.authStore({ act: 'delete', table: 'auth_account', where, one: false });
  assert.equal((await browser.ask('DELETE', `/v1/auth/passkeys/${id}`)).status, 409);
  assert.equal((await browser.ask('GET', '/v1/auth/passkeys')).body['data'].length, 1);
});

/** None of the codes that are taken now. */
function wrongCode(secret: string): string {
  const right = [-2, -1, 0, 1, 2].map((step) => totp(secret, Date.now() + step * 30_000));
  return ['000000', '111111', '222222', '333333', '444444', '555555'].find((code) => !right.includes(code))!;
}

/** What a security key does (WebAuthn 6.3), for one credential. */
class Authenticator {
  readonly id: string;
  readonly key: { readonly publicKey: KeyObject; readonly privateKey: KeyObject };
  readonly #origin: string;
  #uses = 0;

  constructor(
    origin: string,
    id = randomBytes(32).toString('base64url'),
    key = generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ) {
    this.#origin = origin;
    this.id = id;
    this.key = key;
  }

  register(challenge: string): object {
    const { x, y } = this.key.publicKey.export({ format: 'jwk' });
    const id = Buffer.from(this.id, 'base64url');
    const length = Buffer.alloc(2);
    length.writeUInt16BE(id.length);
    const cose = Buffer.concat([
      Buffer.from('a5010203262001215820', 'hex'),
      Buffer.from(x!, 'base64url'),
      Buffer.from('225820', 'hex'),
      Buffer.from(y!, 'base64url'),
    ]);
    const data = Buffer.concat([this.#data(0x45), Buffer.alloc(16), length, id, cose]);
    const attestationObject = Buffer.concat([
      Buffer.from('a363666d74646e6f6e656761747453746d74a068617574684461746159', 'hex'),
      Buffer.from([data.length >> 8, data.length & 255]),
      data,
    ]);
    return this.#credential({
      clientDataJSON: this.#client('webauthn.create', challenge),
      attestationObject: attestationObject.toString('base64url'),
    });
  }

  prove(challenge: string, { isChecked = true } = {}): object {
    const clientDataJSON = this.#client('webauthn.get', challenge);
    const data = this.#data(isChecked ? 0x05 : 0x01);
    const signed = Buffer.concat([
      data,
      createHash('sha256').update(Buffer.from(clientDataJSON, 'base64url')).digest(),
    ]);
    return this.#credential({
      clientDataJSON,
      authenticatorData: data.toString('base64url'),
      signature: sign('sha256', signed, this.key.privateKey).toString('base64url'),
    });
  }

  #data(flags: number): Buffer {
    const counter = Buffer.alloc(4);
    counter.writeUInt32BE(++this.#uses);
    const party = createHash('sha256').update(new URL(this.#origin).hostname).digest();
    return Buffer.concat([party, Buffer.from([flags]), counter]);
  }

  #client(type: string, challenge: string): string {
    return Buffer.from(JSON.stringify({ type, challenge, origin: this.#origin, crossOrigin: false })).toString(
      'base64url',
    );
  }

  #credential(response: object): object {
    return { id: this.id, rawId: this.id, type: 'public-key', response, clientExtensionResults: {} };
  }
}
