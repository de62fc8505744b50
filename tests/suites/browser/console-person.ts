/** What people do in the console in more than one test. */
import { noFeatures, scriptedModel, until } from '../../support/service.ts';
import type { TestService } from '../../support/service.ts';
import type { Visitor } from '../../support/visitor.ts';
import type { Person } from './browser.ts';

/** A service with the console, where anybody may sign up, whose model answers "It is Paris.": a whole configuration file. */
export const openConsole = `server:\n  inference: { port: 0 }\n  account: { port: 0 }\nsign_in: { sign_up: open }\n${scriptedModel(
  '- { say: [{ text: "It is " }, { text: "Paris." }] }',
  { settings: noFeatures },
)}`;

interface Credentials {
  readonly email: string;
  readonly password: string;
}

/** In any language with a password, and in English the code of an authenticator too. */
export async function signIn(
  person: Person,
  { accountUrl }: Pick<TestService, 'accountUrl'>,
  { email, password }: Credentials,
  { next = '/', code }: { readonly next?: string; readonly code?: () => string } = {},
): Promise<void> {
  const { page } = person;
  await page.goto(`${accountUrl}/sign-in?next=${encodeURIComponent(next)}`);
  await page.locator('input[name=email]').fill(email);
  await page.locator('input[name=password]').fill(password);
  await page.locator('button[type=submit]').click();
  if (code !== undefined) {
    await page.getByLabel('Code').fill(code());
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  }
  await page.waitForURL(accountUrl + next);
}

/** The path with its token that the newest mail of a kind to an address links to, as the operator reads it in the outbox. */
export async function linkMailedTo(operator: Visitor, to: string, path: string): Promise<string> {
  let found: string | undefined;
  await until(async () => {
    const { data } = await operator.get('/v1/admin/outbox?limit=100');
    for (const { id } of data.filter((mail: { readonly to: string }) => mail.to === to)) {
      const { text } = await operator.get(`/v1/admin/outbox/${id}`);
      found ??= new RegExp(`${path}#[\\w.-]+`).exec(String(text))?.[0];
    }
    return found !== undefined;
  });
  return found!;
}
