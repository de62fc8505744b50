/**
 * What a person meets whose form is refused: a page, and a way to go on. Programs get JSON, as always. The pages in a real browser
 * are the suite `browser`.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { accountRoutes } from '../../src/account-api/routes.ts';
import { openHost } from './host.ts';

const open = { signIn: { signUp: 'open', oidc: [] } } as const;

test('a form that is refused answers a browser with a page that says how to go on, and a program with JSON', async (t) => {
  const host = await openHost(t, accountRoutes, Date.now, open);
  const press = (accept: string) =>
    host.ask('POST', '/v1/credits/topup_form', {
      headers: [
        ['content-type', 'application/x-www-form-urlencoded'],
        // As Chromium sends it from a page whose `referrer-policy` is `no-referrer`.
        ['origin', 'null'],
        ['sec-fetch-site', 'same-origin'],
        ['accept', accept],
      ],
      body: 'key=one&amount_cents=1000',
    });
  const page = await press('text/html,application/xhtml+xml,*/*;q=0.8');
  assert.equal(page.status, 401);
  assert.match(page.headers['content-type']!, /^text\/html/);
  assert.match(page.headers['content-security-policy']!, /default-src 'none'/);
  assert.match(
    page.body,
    /<h1>Sign in first<\/h1>[^]*href="\/sign-in\?next=\/topup"[^]*href="\/docs\/errors\/missing_api_key"/,
  );
  const json = await press('*/*');
  assert.deepEqual([json.status, (json.json() as { error: { code: string } }).error.code], [401, 'missing_api_key']);
});
