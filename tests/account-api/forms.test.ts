/** What a person meets who presses a button of a page of ours: a page, and a way to go on. Programs get JSON, as ever. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createContext, runInContext } from 'node:vm';

import { accountRoutes } from '../../src/account-api/routes.ts';
import { person, password } from '../people/person.ts';
import { openHost } from './host.ts';

const open = { signIn: { signUp: 'open', oidc: [] } } as const;

test('a form that is refused answers a browser with a page that says how to go on, and a program with JSON', async (t) => {
  const host = await openHost(t, accountRoutes, Date.now, open);
  const press = (accept: string) =>
    host.ask('POST', '/v1/credits/topup_form', {
      headers: [
        ['content-type', 'application/x-www-form-urlencoded'],
        ['origin', host.url],
        ['accept', accept],
      ],
      body: 'key=one&amount_cents=1000',
    });
  const page = await press('text/html,application/xhtml+xml,*/*;q=0.8');
  assert.equal(page.status, 401);
  assert.match(page.headers['content-type']!, /^text\/html/);
  assert.match(page.headers['content-security-policy']!, /default-src 'none'/);
  assert.match(page.body, /<h1>Sign in first<\/h1>[^]*href="\/sign-in"[^]*href="\/docs\/errors\/missing_api_key"/);
  const json = await press('*/*');
  assert.deepEqual([json.status, (json.json() as { error: { code: string } }).error.code], [401, 'missing_api_key']);
});

/** As much of a browser as the script of the pages asks for. */
function browserAt(path: string, html: string, hash: string, send: (path: string, body: string) => Promise<Response>) {
  const attribute = (name: string): string | undefined => new RegExp(`<form[^>]* ${name}="([^"]*)"`).exec(html)?.[1];
  const inputs = [...html.matchAll(/<input name="([^"]+)"/g)].map(([, name]) => ({
    name: name!,
    value: '',
    hidden: false,
    closest() {
      return this;
    },
  }));
  const button = { name: '', value: '', disabled: false };
  const status = { textContent: '' };
  let submit: ((event: { preventDefault(): void }) => Promise<void>) | undefined;
  const form = {
    dataset: { post: attribute('data-post'), done: attribute('data-done'), next: attribute('data-next') },
    elements: Object.assign([...inputs, button], Object.fromEntries(inputs.map((input) => [input.name, input]))),
    querySelector: (selector: string) => (selector === 'button' ? button : status),
    addEventListener: (_: string, listener: typeof submit) => (submit = listener),
  };
  const went: string[] = [];
  const location = { hash, pathname: path, assign: (to: string) => went.push(to) };
  const context = createContext({
    document: { querySelector: () => form },
    location,
    history: { replaceState: () => (location.hash = '') },
    decodeURIComponent,
    fetch: (to: string, { body }: { readonly body: string }) => send(to, body),
  });
  return {
    context,
    went,
    status,
    location,
    fields: inputs.map(({ name }) => name),
    submit: async (values: Readonly<Record<string, string>>) => {
      for (const input of inputs) input.value = values[input.name] ?? input.value;
      await submit!({ preventDefault: () => {} });
    },
  };
}

test('the page of signing in signs in, says what is wrong, asks for a code, and leads on', async (t) => {
  const host = await openHost(t, accountRoutes, Date.now, open);
  await person(host, 'ada@example.org');
  const script = (await host.ask('GET', '/welcome.js')).body;
  const visit = async (path: string, answer?: object) => {
    const { status, body } = await host.ask('GET', path);
    assert.equal(status, 200);
    const browser = browserAt(path, body, '', async (to, text) => {
      if (answer !== undefined) return Response.json(answer);
      const told = await host.ask('POST', to, { json: JSON.parse(text) as object, headers: [['origin', host.url]] });
      return new Response(told.body, { status: told.status });
    });
    runInContext(script, browser.context);
    return browser;
  };
  const browser = await visit('/sign-in');
  assert.deepEqual(browser.fields, ['email', 'password']);
  await browser.submit({ email: 'ada@example.org', password: 'not this one' });
  assert.ok(browser.status.textContent.length > 10 && browser.went.length === 0, browser.status.textContent);
  await browser.submit({ email: 'ada@example.org', password });
  assert.deepEqual([browser.status.textContent, browser.went], ['You are signed in.', ['/topup']]);

  const second = await visit('/sign-in', { object: 'sign_in', two_factor_required: true });
  await second.submit({ email: 'ada@example.org', password });
  assert.deepEqual(second.went, ['/sign-in/code']);
  const code = await visit('/sign-in/code');
  assert.deepEqual(code.fields, ['code']);
  await code.submit({ code: '123456' });
  assert.ok(code.status.textContent.length > 10 && code.went.length === 0, code.status.textContent);
});

test('the token of a link is taken out of the address, and sent', async (t) => {
  const host = await openHost(t, accountRoutes);
  const sent: unknown[] = [];
  const browser = browserAt('/verify-email', (await host.ask('GET', '/verify-email')).body, '#a-token', (to, body) => {
    sent.push(to, JSON.parse(body));
    return Promise.resolve(Response.json({ done: true }));
  });
  runInContext((await host.ask('GET', '/welcome.js')).body, browser.context);
  assert.equal(browser.location.hash, '');
  await browser.submit({});
  assert.deepEqual(sent, ['/v1/auth/verify-email', { token: 'a-token' }]);
  assert.deepEqual([browser.status.textContent, browser.went], ['Confirmed. You can sign in now.', []]);
});
