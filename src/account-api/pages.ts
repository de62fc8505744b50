import type { DemoCheckout } from '../billing/payments/demo.ts';
import type { DemoOutcome } from '../billing/payments/demo-outcomes.ts';
import { centsText } from '../platform/dollars.ts';
import { escaped, page } from '../platform/html.ts';
import { chargeOf, errorTable } from '../platform/errors.ts';
import type { ApiError, ErrorCode, ErrorRow } from '../platform/errors.ts';
import { errorExamples } from '../platform/error-examples.ts';
import type { ErrorExample } from '../platform/error-examples.ts';

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

/** Dollars as people write them: `10`, `$12.50`, `1,250.00`; at most eight digits before the point. */
export const dollarPattern = String.raw`\$?(?:\d{1,8}|\d{1,2}(?:,\d{3}){1,2}|\d{3},\d{3})(?:\.\d{1,2})?`;

/** `topup_url` of the 402. */
export function topupPage(key: string, takesPayments: boolean): string {
  const form = takesPayments
    ? `<p>If you are signed in here as owner, admin or billing member of an account, you pay on the next page (<a href="/sign-in?next=/topup">sign in</a>):</p>
<form method="post" action="/v1/credits/topup_form"><input type="hidden" name="key" value="${escaped(key)}">
<label>Amount in dollars <input name="amount" inputmode="decimal" pattern="${escaped(dollarPattern)}" value="10.00" autocomplete="off" required></label>
<p><label><input type="checkbox" name="save_payment_method" value="1"> Keep this card for automatic top-ups</label></p>
<button>Continue to payment</button></form>
<p>Programs call <code>POST /v1/credits/topups</code> with a management key. The credit is there as soon as the payment is
reported; <code>GET /v1/credits</code> shows it.</p>
<p>The operator of this server can also add credit on its command line:</p>`
    : '<p>The operator of this server adds credit on its command line:</p>';
  return page(
    'Add credit',
    `${form}
<pre>npx tokenhouse credits grant --account &lt;account id&gt; --dollars 5.00</pre>
<p><code>npx tokenhouse credits show</code> lists the accounts with their balances. The credit can be spent at once.</p>`,
  );
}

/** The page for a user whose form was refused. */
export function refusedFormPage(error: ApiError): string {
  return page(
    error.status === 401 ? 'Sign in first' : 'This did not work',
    `<p>${prose(error.message)}</p>
<p>${error.status === 401 ? '<a href="/sign-in?next=/topup">Sign in</a> · ' : ''}<a href="/topup">Add credit</a> · <a href="/docs/errors/${error.code}">What it means</a></p>`,
  );
}

export function notFoundPage(): string {
  return page(
    'Not found',
    '<p>Page not found. <a href="/docs">Documentation</a> · <a href="/docs/errors">Error codes</a> · <a href="/topup">Add credit</a></p>',
  );
}

/** The page of the built-in payment provider. */
export function demoCheckoutPage(checkout: DemoCheckout): string {
  const { id, amountCents, currency, status, topupId, successUrl, cancelUrl } = checkout;
  const button = (outcome: DemoOutcome, text: string): string =>
    `<p><button name="outcome" value="${outcome}">${escaped(text)}</button></p>`;
  const choices: readonly string[] =
    status === 'open' || status === 'failed'
      ? [
          button('success', 'Pay'),
          button('duplicate', 'Pay, and report it three times'),
          button('delay', 'Pay, and report it some seconds later'),
          button('failure', 'Fail'),
          button('expire', 'Let this page expire'),
        ]
      : status === 'paid'
        ? [button('refund', 'Refund the rest'), button('dispute', 'Charge it back (dispute by the bank)')]
        : status === 'disputed'
          ? [button('win', 'Dispute: the seller wins'), button('lose', 'Dispute: the payer wins')]
          : [];
  const refunded = (checkout.refunds ?? []).length > 0 ? [button('refund_failure', 'Make the last refund fail')] : [];
  return page(
    'Demonstration payment',
    `<p><strong>No money moves here.</strong> This page stands in for the page of a payment provider.</p>
<dl><dt>Amount</dt><dd>${centsText(amountCents)} ${escaped(currency.toUpperCase())}</dd><dt>Top-up</dt><dd><code>${escaped(topupId)}</code></dd><dt>State</dt><dd>${status}</dd></dl>
<form method="post" action="/v1/payments/demo/${escaped(id)}">${[...choices, ...refunded].join('')}</form>
<p><a href="${escaped(status === 'open' || status === 'failed' ? cancelUrl : successUrl)}">Back</a></p>`,
  );
}

/** Text of the table: escaped, with `code` set as code. */
const prose = (text: string): string => escaped(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
