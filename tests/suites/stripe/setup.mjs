// Stripe's own stand-in for its API, stripe-mock (MIT): it checks each request against Stripe's OpenAPI document, which is
// built into it, and answers with objects of the real shape. Half a minute to build.
import { goProgram } from '../../../scripts/go-program.mjs';

/** The tests take the one that was found here. */
export const setup = () =>
  goProgram({
    name: 'stripe-mock',
    package: 'github.com/stripe/stripe-mock',
    version: 'v0.203.0',
    go: '1.22',
    variable: 'STRIPE_MOCK',
    proof: ['-version'],
  });
