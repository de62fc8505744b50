import { centsText } from '../platform/dollars.ts';
import { escaped, page } from '../platform/html.ts';
import { pageScriptTag } from './form-pages.ts';
import type { SignedIn } from './senders.ts';
import type { AccountServices } from './services.ts';
import { centsOf } from './wire.ts';

const accountsMax = 10;

/** `/`: what runs here and, for a signed-in user, who they are and the credit of their accounts. */
export async function homePage(cookie: string | undefined, services: AccountServices): Promise<string> {
  const person = cookie === undefined ? undefined : await services.users.signedIn(cookie);
  const links = `<ul>
<li><a href="/topup">Add credit</a></li>
<li><a href="/openapi.json">OpenAPI document of this API</a></li>
<li><a href="/docs">Documentation</a></li>
<li><a href="/docs/errors">Error codes</a></li>
</ul>
<p>This is the account host of an inference service: accounts, keys, credit and usage. The API is below <code>/v1</code>. Models are
called at the inference host, which has its own address and its own <code>/openapi.json</code>.</p>`;
  const own = person === undefined ? signedOut : await signedIn(person, services);
  return page('Tokenhouse', `${own}<p role="status"></p>\n${links}\n${pageScriptTag}`);
}

const signedOut = '<p><a href="/sign-in">Sign in</a></p>\n';

async function signedIn({ userId, name, email }: SignedIn, { operations }: AccountServices): Promise<string> {
  const { repositories, now } = operations;
  const memberships = await repositories.listMemberships({ userId });
  const rows = await Promise.all(
    memberships.slice(0, accountsMax).map(async ({ accountId, name, role, status }) => {
      const credit = await repositories.creditSummary({ accountId, now: now() });
      const balance = credit === undefined ? '' : centsText(centsOf(credit.balanceMicrocents));
      const state = status === 'active' ? '' : ` (${escaped(status)})`;
      return `<tr><td>${escaped(name)}${state}<br><code>${escaped(accountId)}</code></td><td>${escaped(role)}</td><td>${balance}</td></tr>`;
    }),
  );
  const more = memberships.length - rows.length;
  const accounts =
    rows.length === 0
      ? '<p>You do not belong to an account yet.</p>'
      : `<table><tr><th>Account</th><th>Role</th><th>Credit</th></tr>${rows.join('')}</table>${more > 0 ? `<p>And ${more} more.</p>` : ''}`;
  return `<p>Signed in as <strong>${escaped(name)}</strong> (${escaped(email)}).</p>
${accounts}
<form data-post="/v1/auth/sign-out" data-bare data-done="You are signed out." data-next="/" method="post"><p><button>Sign out</button></p></form>
<p><button type="button" data-passkey="create" hidden>Add a passkey</button></p>
`;
}
