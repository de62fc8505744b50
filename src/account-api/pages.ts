import type { DemoCheckout } from '../billing/payments/demo.ts';
import { centsText } from '../platform/dollars.ts';
import { escaped, page } from '../platform/html.ts';
import { chargeOf, errorTable } from '../platform/errors.ts';
import type { ErrorCode, ErrorRow } from '../platform/errors.ts';
import { errorExamples } from '../platform/error-examples.ts';
import type { ErrorExample } from '../platform/error-examples.ts';
import type { SignedHead } from '../store/proofs/prove-row.ts';
import type { PublicKey } from '../store/proofs/signing-keys.ts';

/** The list of error codes, printed from the table. */
export function errorIndexPage(): string {
  const rows = Object.entries(errorTable).map(
    ([code, row]) =>
      `<tr><td><a href="/docs/errors/${code}"><code>${code}</code></a></td><td>${row.status}</td><td>${prose(row.meaning)}</td></tr>`,
  );
  return page(
    'Errors',
    `<p>Branch on <code>error.code</code>; a status stands for several codes, and messages may change.</p><table class="codes"><tr><th>Code</th><th>Status</th><th>When</th></tr>${rows.join('')}</table>
<p><a href="/docs">Documentation</a></p>`,
  );
}

/** One page per code: the target of `docs_url`, below `accountUrl`. `undefined` for a code that does not exist. */
export function errorPage(code: string, accountUrl: string): string | undefined {
  if (!Object.hasOwn(errorTable, code)) return undefined;
  const row: ErrorRow = errorTable[code as ErrorCode];
  const example: ErrorExample = errorExamples[code as ErrorCode];
  const { message, param, extra = {}, headers = {} } = example;
  const body = {
    error: {
      type: row.type,
      code,
      message,
      ...(param === undefined ? {} : { param }),
      ...Object.fromEntries(Object.entries(extra).map(([name, [, value]]) => [name, value])),
      request_id: 'req_0123456789ab',
      docs_url: `${accountUrl}/docs/errors/${code}`,
    },
  };
  return page(
    code,
    `<dl>
<dt>When</dt><dd>${prose(row.meaning)}</dd>
<dt>What to do</dt><dd>${prose(row.remedy)}</dd>
<dt>Status</dt><dd>${row.status}</dd>
<dt>Type</dt><dd><code>${row.type}</code></dd>
<dt>Retry</dt><dd>${row.retry}</dd>
<dt>Charge</dt><dd>${chargeOf(row)}</dd>
<dt>Field at fault</dt><dd>${param === undefined ? 'None: <code>param</code> is absent.' : 'In <code>param</code>: the path of the field, the name of the header, or absent where no field is at fault.'}</dd>
</dl>
${factsTable(
  'Fields of this code',
  Object.entries(extra).map(([name, [what]]) => [name, what]),
)}${factsTable('Headers of this code', Object.entries(headers))}<h2>Example</h2><pre>HTTP/1.1 ${row.status}
content-type: application/json
x-request-id: req_0123456789ab

${escaped(JSON.stringify(body, null, 2))}</pre>
<p>On <code>/v1/messages</code> the same object is inside <code>{"type":"error","error":{…}}</code>. In the middle of a stream it is the last event.</p>
<p><a href="/docs/errors">All codes</a> · <a href="/docs">Documentation</a></p>`,
  );
}

function factsTable(title: string, facts: readonly (readonly [string, string])[]): string {
  if (facts.length === 0) return '';
  const rows = facts.map(([name, what]) => `<tr><td><code>${escaped(name)}</code></td><td>${prose(what)}</td></tr>`);
  return `<h2>${title}</h2><table class="facts">${rows.join('')}</table>\n`;
}

export const notFoundPage = (): string =>
  page(
    'Not found',
    '<p>There is no page at this address.</p><p><a href="/">Home</a> · <a href="/docs">Documentation</a> · <a href="/docs/errors">Error codes</a></p>',
  );

/** The first page, for programs, and where the console is off. */
export const homePage = (): string =>
  page(
    'Tokenhouse',
    `<p>This is the account host of an inference service: accounts, keys, credit and usage. Its API is below <code>/v1</code>; its web
console is for browsers, where it is turned on (<code>server.account.console</code>).</p>
<p><a href="/openapi.json">OpenAPI document of this API</a> · <a href="/docs">Documentation</a> · <a href="/docs/errors">Error codes</a></p>`,
  );

/** The `topup_url` of a 402, likewise. */
export const topupPage = (): string =>
  page(
    'Add credit',
    `<p>Credit is added on the billing page of the web console, or by a program: <code>POST /v1/credits/topups</code> with a management
key. The operator of this server adds it on the command line:</p>
<pre>npx tokenhouse credits grant --account &lt;account id&gt; --dollars 5.00</pre>
<p>It can be spent as soon as it is there. <a href="/docs">Documentation</a></p>`,
  );

interface HeadsList {
  readonly data: readonly SignedHead[];
  readonly next_after?: string | undefined;
  readonly keys: readonly PublicKey[];
}

/** The signed days, newest first, and the keys to check them with. `after`: the date that was asked for. */
export function headsPage({ data, next_after: next, keys }: HeadsList, after: string | undefined): string {
  const code = (text: string): string => `<code>${escaped(text)}</code>`;
  const days = data.map(
    (head) => `<h2><a href="/v1/heads/${escaped(head.date)}">${escaped(head.date)}</a></h2>
<dl><dt>Root</dt><dd>${code(head.root)}</dd>
<dt>Previous</dt><dd>${head.previous === null ? 'None: this is the first signed day.' : code(head.previous)}</dd>
<dt>Signed</dt><dd>${code(new Date(Number(head.signed_at)).toISOString())} with the key ${code(head.key_id)}</dd>
<dt>Signature</dt><dd>${code(head.signature)}</dd></dl>`,
  );
  const shownKeys = keys.map((key) => `<dt>${code(key.id)}</dt><dd>${code(key.public_key)}</dd>`);
  const links = [
    ...(after === undefined ? [] : ['<a href="/heads">Newest days</a>']),
    ...(next === undefined ? [] : [`<a href="/heads?after=${escaped(next)}">Earlier days</a>`]),
    `<a href="/v1/heads${after === undefined ? '' : `?after=${escaped(after)}`}">This page as JSON</a>`,
  ];
  const none = after === undefined ? 'No day is signed yet.' : 'No earlier day is signed.';
  return page(
    'Signed days',
    `<p>Each day of this service is signed at 01:00 UTC of the next one. What was charged for a request on a signed day cannot be changed without
being noticed by whoever kept the day's head. <a href="/docs/receipts">How to check a receipt with it</a></p>
${days.length === 0 ? `<p>${none}</p>` : days.join('\n')}
<p>${links.join(' · ')}</p>
${shownKeys.length === 0 ? '' : `<h2>Public keys</h2>\n<p>Ed25519, in hex, oldest first. Keep them, and the heads: those of later must agree with them.</p>\n<dl>${shownKeys.join('\n')}</dl>\n`}`,
  );
}

const demoStates: Readonly<Record<DemoCheckout['status'], string>> = {
  open: 'Not paid yet',
  failed: 'The card was declined',
  paid: 'Paid',
  expired: 'This payment has expired',
  refunded: 'Refunded',
  disputed: 'Disputed at the bank',
  lost: 'Charged back by the bank',
};

/** The page of the built-in payment provider. */
export function demoCheckoutPage(checkout: DemoCheckout): string {
  const { id, amountCents, currency, status, topupId, successUrl, cancelUrl } = checkout;
  const isOpen = status === 'open' || status === 'failed';
  const amount = `${centsText(amountCents)} ${escaped(currency.toUpperCase())}`;
  const buttons = `<button class="main" name="outcome" value="success">Pay ${amount}</button> <button name="outcome" value="failure">Decline the card</button>`;
  return page(
    isOpen ? 'Add credit' : demoStates[status],
    `<div class="card"><p class="amount">${amount}</p>
${status === 'failed' ? `<p role="alert">${demoStates.failed}. Nothing was charged; try again.</p>` : ''}
<p><strong>No money moves here.</strong> This page stands in for the page of a payment provider.</p>
${isOpen ? `<form method="post" action="/v1/payments/demo/${escaped(id)}"><p>${buttons}</p></form>` : ''}
<p><a href="${escaped(isOpen ? cancelUrl : successUrl)}">${isOpen ? 'Cancel and go back' : 'Go back'}</a></p></div>
<p><small>Top-up <code>${escaped(topupId)}</code></small></p>`,
  );
}

/** Text of the table: escaped, with `code` set as code. */
const prose = (text: string): string => escaped(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
