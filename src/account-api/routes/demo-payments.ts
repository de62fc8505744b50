import Type from 'typebox';

import { ApiError } from '../../platform/errors.ts';
import { pageHeaders } from '../../platform/html.ts';
import type { DemoProvider } from '../../billing/payments/demo.ts';
import { demoOutcomes } from '../../billing/payments/demo-outcomes.ts';
import type { DemoOutcome } from '../../billing/payments/demo-outcomes.ts';
import { PaymentError } from '../../billing/payments/provider.ts';
import { notThere } from '../input.ts';
import { demoCheckoutPage, dollarPattern } from '../pages.ts';
import { mayPay, Reply, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import type { AccountServices } from '../services.ts';
import { begin, paymentsOf } from './payments.ts';

const params = Type.Object({ id: Type.String({ pattern: '^cs_demo_[0-9a-f]{32}$' }) });
/** The form of the top-up page, and the pages of the built-in payment provider. */
export const demoPaymentRoutes: readonly AccountRoute[] = [
  route({
    method: 'post',
    path: '/v1/credits/topup_form',
    operationId: 'submitTopupForm',
    tag: 'Credit',
    summary: 'Form of the top-up page',
    description:
      'What `/topup` sends as a form: `amount` in dollars (`10`, `12.50`, `1,250.00`) or `amount_cents`, `key`, and `save_payment_method` if it is ticked. Redirects to the payment page. Programs use `POST /v1/credits/topups`.',
    access: mayPay,
    body: 'raw',
    answers: [{ status: 303, description: 'Redirect to the payment page.' }],
    errors: ['http_409'],
    handle: async (call) => {
      const form = formOf(call.body);
      const amountCents = centsOfForm(form);
      const key = form.get('key') ?? '';
      if (!/^[!-~]{1,200}$/.test(key))
        throw new ApiError('unsupported_value', 'The form is incomplete; load the page again.', { param: 'key' });
      const back = `${call.services.accountUrl()}/topup`;
      const topup = await begin(call, paymentsOf(call.services), amountCents, {
        successUrl: back,
        cancelUrl: back,
        idempotencyKey: `form:${key}`,
        keepsCard: form.has('save_payment_method') ? true : undefined,
      });
      return new Reply(303, { location: topup.checkoutUrl ?? back });
    },
  }),
  route({
    method: 'get',
    path: '/v1/payments/demo/{id}',
    operationId: 'showDemoCheckout',
    tag: 'Credit',
    summary: 'Page of the built-in payment provider',
    description: 'Plays the payment of a top-up, or its failure, without money. The address itself is the secret.',
    access: 'anyone',
    params,
    answers: [{ status: 200, description: 'A page.', contentType: pageHeaders['content-type'] }],
    handle: async ({ params: { id }, services }) => {
      const checkout = await demoOf(services).getCheckout(id);
      if (checkout === undefined) throw notThere();
      return new Reply(200, pageHeaders, demoCheckoutPage(checkout));
    },
  }),
  route({
    method: 'post',
    path: '/v1/payments/demo/{id}',
    operationId: 'playDemoCheckout',
    tag: 'Credit',
    summary: 'Play a payment',
    description: `\`outcome\` as a form: ${demoOutcomes.map((outcome) => `\`${outcome}\``).join(', ')}.`,
    access: 'anyone',
    params,
    body: 'raw',
    answers: [{ status: 303, description: 'Redirect to where the person came from, or to the payment page.' }],
    errors: ['http_409'],
    handle: async ({ params: { id }, body, services }) => {
      const demo = demoOf(services);
      const outcome = formOf(body).get('outcome');
      if (!isOutcome(outcome))
        throw new ApiError('unsupported_value', `The outcome must be one of ${demoOutcomes.join(', ')}.`, {
          param: 'outcome',
        });
      if ((await demo.getCheckout(id)) === undefined) throw notThere();
      try {
        const checkout = await demo.play(id, outcome);
        const isPaid = outcome === 'success' || outcome === 'duplicate' || outcome === 'delay';
        return new Reply(303, { location: isPaid ? checkout.successUrl : `/v1/payments/demo/${id}` });
      } catch (error) {
        if (!(error instanceof PaymentError)) throw error;
        throw new ApiError('http_409', error.message, { cause: error });
      }
    },
  }),
];

function demoOf({ demo }: AccountServices): DemoProvider {
  if (demo === undefined) throw notThere();
  return demo;
}

/** `1,250.00` as a person writes it in the page's field, or whole cents. */
function centsOfForm(form: URLSearchParams): number {
  const cents = form.get('amount_cents');
  if (cents !== null) {
    if (/^\d{1,10}$/.test(cents)) return Number(cents);
    throw new ApiError('unsupported_value', 'Write the amount in whole cents.', { param: 'amount_cents' });
  }
  const written = (form.get('amount') ?? '').trim();
  if (!dollarAmount.test(written))
    throw new ApiError('unsupported_value', 'Write the amount in dollars, for example 12.50.', { param: 'amount' });
  const [whole = '', fraction = ''] = written.replace('$', '').replaceAll(',', '').split('.');
  return Number(whole) * 100 + Number(fraction.padEnd(2, '0'));
}

const dollarAmount = new RegExp(`^(?:${dollarPattern})$`);

const formOf = (bytes: Uint8Array): URLSearchParams => new URLSearchParams(Buffer.from(bytes).toString('utf8'));

const isOutcome = (text: string | null): text is DemoOutcome =>
  (demoOutcomes as readonly (string | null)[]).includes(text);
