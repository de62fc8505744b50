import Type from 'typebox';

import { ApiError } from '../../platform/errors.ts';
import { pageHeaders } from '../../platform/html.ts';
import type { DemoProvider } from '../../billing/payments/demo.ts';
import { demoOutcomes } from '../../billing/payments/demo-outcomes.ts';
import type { DemoOutcome } from '../../billing/payments/demo-outcomes.ts';
import { PaymentError } from '../../billing/payments/provider.ts';
import { notThere } from '../input.ts';
import { demoCheckoutPage } from '../pages.ts';
import { Reply, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import type { AccountServices } from '../services.ts';

const params = Type.Object({ id: Type.String({ pattern: '^cs_demo_[0-9a-f]{32}$' }) });
/** The page of the built-in payment provider. Tests cause more outcomes than it has buttons for. */
export const demoPaymentRoutes: readonly AccountRoute[] = [
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

const formOf = (bytes: Uint8Array): URLSearchParams => new URLSearchParams(Buffer.from(bytes).toString('utf8'));

const isOutcome = (text: string | null): text is DemoOutcome =>
  (demoOutcomes as readonly (string | null)[]).includes(text);
