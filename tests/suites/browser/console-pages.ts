import assert from 'node:assert/strict';

import type { Person } from './browser.ts';

/** A page of the console. The suite visits it in both colour schemes, on a phone and on a desktop, in every language. */
export interface ConsolePage {
  /** `KEY`, `REQUEST`, `ACCOUNT`, `OTHER`, `FAILED` and `ENDPOINT` stand for ids that are there. */
  readonly path: string;
  /** Signed in as the owner, who is the operator too; left out: not signed in. */
  readonly signedIn?: true;
  /** Selects what is there when the page has what it asks for without saying that it loads. */
  readonly ready?: string;
  /** Opens what is not there at first, a dialog for example; it is looked at afterwards as well. */
  readonly then?: (person: Person) => Promise<void>;
}

export const consolePages: readonly ConsolePage[] = [
  { path: '/sign-in' },
  { path: '/sign-in?sign_in=failed&next=https://evil.example' },
  { path: '/sign-up' },
  { path: '/forgot-password' },
  { path: '/welcome' },
  { path: '/welcome#not-a-real-token-0123' },
  { path: '/reset-password#not-a-real-token-0123' },
  { path: '/verify-email#not-a-real-token-0123' },
  { path: '/invitation#not-a-real-token-0123' },
  { path: '/', signedIn: true },
  { path: '/start', signedIn: true },
  // The key of its session.
  { path: '/playground', signedIn: true, ready: 'button[title*=PDF]:enabled' },
  {
    path: '/playground?family=messages&format=json_schema&stop=end',
    signedIn: true,
    ready: 'button[title*=PDF]:enabled',
  },
  { path: '/models', signedIn: true },
  { path: '/models?q=nothing', signedIn: true },
  { path: '/models/demo', signedIn: true },
  { path: '/models/broken', signedIn: true },
  { path: '/models/nothing', signedIn: true },
  { path: '/keys', signedIn: true, then: (person) => pressKey(person, '?') },
  { path: '/keys?disabled=true', signedIn: true, then: (person) => pressKey(person, 'Control+k') },
  { path: '/keys?create=true', signedIn: true },
  { path: '/keys/KEY', signedIn: true },
  { path: '/keys/key_nothing', signedIn: true },
  { path: '/requests', signedIn: true },
  { path: '/requests?from=1&ending=failed&tag=nothing', signedIn: true },
  { path: '/requests?ending=refused', signedIn: true },
  { path: '/requests?tier=default', signedIn: true, then: openPicker },
  { path: '/requests/REQUEST', signedIn: true },
  { path: '/requests/FAILED', signedIn: true },
  { path: '/requests/req_000000000000', signedIn: true },
  { path: '/batches', signedIn: true, then: saveAnswers },
  { path: '/usage', signedIn: true },
  { path: '/usage?by=key&show=requests&since=today', signedIn: true },
  { path: '/usage?by=tag&model=nothing', signedIn: true },
  { path: '/usage?by=tier&ending=finished', signedIn: true },
  { path: '/usage?by=ending', signedIn: true },
  { path: '/billing', signedIn: true },
  { path: '/billing?add=true', signedIn: true },
  { path: '/billing?view=movements', signedIn: true },
  { path: '/billing?view=invoices', signedIn: true },
  { path: '/billing?view=receipts', signedIn: true },
  { path: '/billing?checkout=cancelled', signedIn: true },
  { path: '/team', signedIn: true },
  { path: '/team?invite=true', signedIn: true },
  { path: '/alerts', signedIn: true },
  { path: '/alerts?add=true', signedIn: true },
  { path: '/alerts/webhooks/whe_00000000000000000000000000000000', signedIn: true },
  { path: '/alerts/webhooks/ENDPOINT', signedIn: true },
  { path: '/audit', signedIn: true, then: openFirstRow },
  { path: '/audit?actor=nobody&action=key&since=7d', signedIn: true },
  { path: '/settings', signedIn: true },
  { path: '/settings?view=security', signedIn: true },
  { path: '/settings?view=account', signedIn: true },
  { path: '/settings?view=data', signedIn: true },
  { path: '/gallery', signedIn: true },
  { path: '/operator/accounts', signedIn: true },
  { path: '/operator/accounts?search=nothing&status=suspended', signedIn: true },
  { path: '/operator/accounts?open=create', signedIn: true },
  { path: '/operator/accounts?open=release', signedIn: true },
  { path: '/operator/accounts/ACCOUNT', signedIn: true },
  { path: '/operator/accounts/ACCOUNT?view=people', signedIn: true },
  { path: '/operator/accounts/ACCOUNT?view=suspensions', signedIn: true },
  { path: '/operator/accounts/OTHER', signedIn: true },
  { path: '/operator/accounts/OTHER?view=suspensions', signedIn: true },
  { path: '/operator/accounts/acct_nothing', signedIn: true },
  { path: '/operator/revenue', signedIn: true },
  { path: '/operator/revenue?by=account&month=2020-01', signedIn: true },
  { path: '/operator/catalogue', signedIn: true },
  { path: '/operator/catalogue', signedIn: true, then: (person) => openDialog(person, 0) },
  { path: '/operator/catalogue?model=demo', signedIn: true, then: (person) => openDialog(person, 2) },
  { path: '/operator/catalogue?model=demo', signedIn: true, then: (person) => openDialog(person, 3) },
  { path: '/operator/catalogue?model=gone', signedIn: true },
  { path: '/operator/catalogue?account=ACCOUNT', signedIn: true },
  { path: '/operator/system', signedIn: true },
  { path: '/operator/outbox', signedIn: true },
  { path: '/operator/outbox?state=failed', signedIn: true },
  { path: '/operator/audit', signedIn: true, then: openFirst },
  { path: '/operator/audit?account=ACCOUNT&action=nothing', signedIn: true },
];

async function openFirstRow({ page }: Person): Promise<void> {
  await page.locator('[data-row] a').first().click();
  await page.locator('dialog[open]').waitFor();
}

async function openPicker({ page }: Person): Promise<void> {
  await page.getByRole('combobox').nth(1).click();
  await page.locator('[role=option] small').first().waitFor();
}

async function pressKey({ page }: Person, key: string): Promise<void> {
  await page.keyboard.press(key);
  await page.locator('dialog[open]').waitFor();
}

/** Of the first batch. */
async function saveAnswers(person: Person): Promise<void> {
  await openFirst(person);
  const { page } = person;
  const dialog = page.locator('dialog[open]');
  const [saved] = await Promise.all([page.waitForEvent('download'), dialog.getByRole('button').nth(-1).click()]);
  assert.match(saved.suggestedFilename(), /^batch_[0-9a-f]{32}_output\.jsonl$/);
}

/** By one of the buttons beside the title; of a model the first one copies the id, and the second one opens a menu. */
async function openDialog({ page }: Person, button: number): Promise<void> {
  await page.locator('main h1').locator('xpath=../..').getByRole('button').nth(button).click();
  await page.locator('dialog[open]').waitFor();
}

/** The first row of the list. */
async function openFirst({ page }: Person): Promise<void> {
  await page.locator('[data-row] a').first().click();
  await page.locator('dialog[open]').waitFor();
}
