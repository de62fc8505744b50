import { dollars } from '../platform/dollars.ts';
import type { BackendConfig, Config, ModelConfig } from './config.ts';
import { identityOf } from './identity.ts';

/** The differences, in lines for an operator; shows no secret. Empty if there are none. */
export function changesBetween(before: Config, after: Config): readonly string[] {
  const changes: string[] = [];
  const earlier = new Map(before.models.map((model) => [model.id.toLowerCase(), model]));
  for (const model of after.models) {
    const known = earlier.get(model.id.toLowerCase());
    earlier.delete(model.id.toLowerCase());
    if (known === undefined) changes.push(`model ${model.id}: added`);
    else changes.push(...changesOfModel(known, model));
  }
  for (const { id } of earlier.values()) changes.push(`model ${id}: removed`);
  const order = (config: Config) => config.models.map(({ id }) => id.toLowerCase());
  if (changes.length === 0 && identityOf(order(before)) !== identityOf(order(after)))
    changes.push('models: in another order');
  const proxies = ({ server }: Config) => server.trustedProxies.join(', ') || 'none';
  if (proxies(before) !== proxies(after)) changes.push(`trusted proxies: ${proxies(before)} → ${proxies(after)}`);
  const origins = ({ server }: Config) => server.allowOrigins.join(', ') || 'none';
  if (origins(before) !== origins(after)) changes.push(`allowed origins: ${origins(before)} → ${origins(after)}`);
  for (const [name, value] of Object.entries(after.server.limits)) {
    const was = before.server.limits[name as keyof typeof before.server.limits];
    // Changes to the others are refused (`refuseRestart` in read.ts).
    if (typeof was === 'number' && was !== value) changes.push(`limit ${name}: ${was} → ${String(value)}`);
  }
  if (identityOf(before.plans) !== identityOf(after.plans)) changes.push('plans: changed');
  if (identityOf(before.images) !== identityOf(after.images)) changes.push('images: changed');
  if (before.items.keepDays !== after.items.keepDays)
    changes.push(`items: kept for ${before.items.keepDays} → ${after.items.keepDays} days`);
  if (identityOf(before.files) !== identityOf(after.files)) changes.push('files: changed');
  if (identityOf(before.invoices) !== identityOf(after.invoices)) changes.push('invoices: changed');
  if (identityOf(before.webhooks) !== identityOf(after.webhooks)) changes.push('webhooks: changed');
  if (identityOf(before.mail) !== identityOf(after.mail)) changes.push('mail: changed');
  // A different provider is refused (`refuseRestart` in read.ts).
  if (identityOf([before.payments]) !== identityOf([after.payments])) changes.push('payments: changed');
  if (identityOf(before.signIn) !== identityOf(after.signIn)) changes.push('sign_in: changed');
  const credit = (config: Config) => config.accounts.firstCreditMicrocents;
  if (credit(before) !== credit(after))
    changes.push(`first credit: ${dollars(credit(before))} → ${dollars(credit(after))}`);
  return changes;
}

const priceNames = {
  input: 'input price',
  output: 'output price',
  cacheRead: 'price of cached tokens',
} as const;

function changesOfModel(before: ModelConfig, after: ModelConfig): string[] {
  const changes: string[] = [];
  const { pricing, backends, ...rest } = after;
  for (const [name, value] of Object.entries(pricing) as [keyof typeof pricing, bigint][]) {
    if (before.pricing[name] !== value)
      changes.push(`${priceNames[name]} ${dollars(before.pricing[name])} → ${dollars(value)} per million tokens`);
  }
  for (const [name, value] of Object.entries(rest) as [keyof typeof rest, unknown][]) {
    if (identityOf([before[name]]) !== identityOf([value])) changes.push(`${name} changed`);
  }
  changes.push(...changesOfBackends(before.backends, backends));
  return changes.map((change) => `model ${after.id}: ${change}`);
}

function changesOfBackends(before: readonly BackendConfig[], after: readonly BackendConfig[]): string[] {
  const changes: string[] = [];
  for (const backend of after) {
    const known = before.find(({ name }) => name === backend.name);
    if (known === undefined) changes.push(`backend ${backend.name} added`);
    else if (identityOf(known) !== identityOf(backend)) changes.push(`backend ${backend.name} changed`);
  }
  for (const { name } of before) {
    if (!after.some((backend) => backend.name === name)) changes.push(`backend ${name} removed`);
  }
  if (changes.length === 0 && before.some(({ name }, index) => after[index]?.name !== name))
    changes.push('backends in another order');
  return changes;
}
