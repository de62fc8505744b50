import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import type { OidcConfig } from '../../../src/config/config.ts';
import { Secret } from '../../../src/config/secret.ts';

export type Claims = Readonly<Record<string, unknown>>;

/** A provider of OpenID Connect: the user is who the test says; the verifier of PKCE is checked. */
export async function startProvider(t: { after(close: () => void): void }) {
  const state = { isDown: false, asked: 0, person: undefined as Claims | undefined };
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const other = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const codes = new Map<
    string,
    { readonly challenge: string; readonly nonce: string | null; readonly claims: Claims; readonly forged: boolean }
  >();
  let url = '';
  const codeFor = (asked: URLSearchParams, claims: Claims, forged = false): string => {
    assert.equal(asked.get('code_challenge_method'), 'S256');
    const code = `code${codes.size}`;
    codes.set(code, { challenge: asked.get('code_challenge')!, nonce: asked.get('nonce'), claims, forged });
    return `?code=${code}&state=${asked.get('state')}&iss=${encodeURIComponent(url)}`;
  };
  const server = createServer((request, response) => {
    const answer = (value: unknown, status = 200): void => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    };
    let body = '';
    request.on('data', (piece: Buffer) => (body += piece.toString()));
    request.on('end', () => {
      const { pathname, searchParams } = new URL(request.url ?? '', url);
      switch (pathname) {
        case '/authorize': {
          const back = new URL(searchParams.get('redirect_uri')!);
          const { person } = state;
          const reported =
            person === undefined
              ? `?error=access_denied&state=${searchParams.get('state')}`
              : codeFor(searchParams, person);
          response.writeHead(302, { location: `${back.origin}${back.pathname}${reported}` }).end();
          return;
        }
        case '/.well-known/openid-configuration':
          state.asked += 1;
          if (state.isDown) {
            answer({}, 503);
            return;
          }
          answer({
            issuer: url,
            authorization_endpoint: `${url}/authorize`,
            token_endpoint: `${url}/token`,
            jwks_uri: `${url}/jwks`,
            id_token_signing_alg_values_supported: ['RS256'],
          });
          return;
        case '/jwks':
          answer({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'RS256', use: 'sig' }] });
          return;
        default: {
          const form = new URLSearchParams(body);
          const known = codes.get(form.get('code') ?? '');
          const proof = createHash('sha256')
            .update(form.get('code_verifier') ?? '')
            .digest('base64url');
          if (known?.challenge !== proof) {
            answer({ error: 'invalid_grant' }, 400);
            return;
          }
          const now = Math.floor(Date.now() / 1000);
          const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
          const text = `${part({ alg: 'RS256', kid: 'k' })}.${part({ iss: url, aud: 'tokenhouse', iat: now, exp: now + 60, nonce: known.nonce, ...known.claims })}`;
          const key = known.forged ? other.privateKey : privateKey;
          answer({
            access_token: 'x',
            token_type: 'Bearer',
            expires_in: 60,
            id_token: `${text}.${sign('sha256', Buffer.from(text), key).toString('base64url')}`,
          });
        }
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const config: OidcConfig = {
    id: 'company',
    name: 'Company',
    issuer: url,
    clientId: 'tokenhouse',
    clientSecret: new Secret('shared'),
    domains: ['example.org'],
  };
  return {
    config,
    state,
    /** Where the provider would send the browser back to. A real browser goes to `/authorize` instead, as `state.person`. */
    authorize: (target: string, claims: Claims, forged = false): string => {
      const asked = new URL(target).searchParams;
      return new URL(asked.get('redirect_uri')!).pathname + codeFor(asked, claims, forged);
    },
  };
}
