/**
 * The parameters of Stripe's API that the service uses, and what each may be; nothing else is taken. The stripe suite proves
 * each against Stripe's own document. `[]` stands for an index, `*` for a name of ours.
 */
export type ParameterKind = 'text' | 'integer' | 'boolean' | readonly string[];

export const parameters: Readonly<Record<string, Readonly<Record<string, ParameterKind>>>> = {
  'POST /v1/checkout/sessions': {
    mode: ['payment'],
    client_reference_id: 'text',
    'line_items[][quantity]': 'integer',
    'line_items[][price_data][currency]': 'text',
    'line_items[][price_data][unit_amount]': 'integer',
    'line_items[][price_data][product_data][name]': 'text',
    'line_items[][price_data][tax_behavior]': ['inclusive', 'exclusive', 'unspecified'],
    customer: 'text',
    customer_email: 'text',
    'customer_update[address]': ['auto', 'never'],
    'customer_update[name]': ['auto', 'never'],
    'automatic_tax[enabled]': 'boolean',
    'tax_id_collection[enabled]': 'boolean',
    customer_creation: ['always', 'if_required'],
    'adaptive_pricing[enabled]': 'boolean',
    'payment_intent_data[setup_future_usage]': ['off_session', 'on_session'],
    'payment_intent_data[metadata][*]': 'text',
    'metadata[*]': 'text',
    success_url: 'text',
    cancel_url: 'text',
  },
  'POST /v1/payment_intents': {
    amount: 'integer',
    currency: 'text',
    customer: 'text',
    payment_method: 'text',
    off_session: 'boolean',
    confirm: 'boolean',
    'metadata[*]': 'text',
  },
  'GET /v1/checkout/sessions/*': { 'expand[]': 'text' },
  'GET /v1/payment_intents/*': { 'expand[]': 'text' },
  'POST /v1/tax/calculations': {
    currency: 'text',
    customer: 'text',
    'line_items[][amount]': 'integer',
    'line_items[][reference]': 'text',
    'line_items[][tax_behavior]': ['inclusive', 'exclusive'],
  },
  'POST /v1/tax/transactions/create_from_calculation': { calculation: 'text', reference: 'text' },
  'POST /v1/refunds': { payment_intent: 'text', amount: 'integer' },
  'GET /v1/events': {
    'created[gte]': 'integer',
    'created[lt]': 'integer',
    'types[]': 'text',
    limit: 'integer',
    starting_after: 'text',
  },
};

/** The call as the list has it. */
export const callOf = (method: string, path: string): string => `${method} ${path.replace(/\/(cs|pi)_[^/]+$/, '/*')}`;

/** The name as the list has it. */
export const placeOf = (name: string): string =>
  name.replaceAll(/\[\d*\]/g, '[]').replace(/metadata(\]?)\[[^\]]+\]$/, 'metadata$1[*]');

/** What is wrong with a request; undefined: nothing. */
export function faultOf(call: string, form: URLSearchParams): string | undefined {
  const known = parameters[call];
  if (known === undefined) return `no such call: ${call}`;
  for (const [name, value] of form) {
    const kind = known[placeOf(name)];
    if (kind === undefined) return `parameter_unknown: ${name}`;
    const isRight =
      kind === 'text'
        ? value !== ''
        : kind === 'integer'
          ? /^\d+$/.test(value)
          : kind === 'boolean'
            ? value === 'true' || value === 'false'
            : kind.includes(value);
    if (!isRight) return `parameter_invalid: ${name}`;
  }
  return undefined;
}
