import { OperationError } from '../accounts/operation.ts';
import type { Config } from '../config/config.ts';
import { withSettings } from '../config/edit.ts';
import { dollars } from '../platform/dollars.ts';
import { StoreError } from '../store/store-error.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import type { WrittenPrices } from './option.ts';
import { changedInFile, modelInFile, takenOverLine, writeConfig } from './write-config.ts';

/** What a model costs and for whom, as the configuration has it. */
export interface Terms {
  readonly pricing: WrittenPrices;
  /** Absent: every account may use it. */
  readonly dedicated_to?: readonly string[];
}

export interface TermsOptions {
  readonly price?: WrittenPrices;
  readonly free?: boolean;
}

const microcentsPerDollar = 100_000_000;

export const nothing: WrittenPrices = { input_dollars_per_million: 0, output_dollars_per_million: 0 };

/**
 * The terms of a model that is added. Without a price or `--free` it is a draft: at price 0, for the accounts of operators alone, because a
 * running service takes it over at once, and nobody should sell for nothing without having said so.
 */
export async function termsOf({ config }: Pick<Context, 'config'>, { price, free }: TermsOptions): Promise<Terms> {
  if (price !== undefined) return { pricing: price };
  const own = free === true ? [] : await accountsOfOperators(config);
  return own.length === 0 ? { pricing: nothing } : { pricing: nothing, dedicated_to: own };
}

export function termsLine(id: string, { pricing, dedicated_to: own }: Terms): string {
  if (own !== undefined)
    return `a draft: only ${own.join(', ')} may use it, at price 0; to sell it: tokenhouse models sell ${id} --price 0.10/0.40`;
  const { input_dollars_per_million: input, output_dollars_per_million: output } = pricing;
  const [read, written] = [input, output].map((rate) => dollars(BigInt(Math.round(rate * microcentsPerDollar))));
  return `${input === 0 && output === 0 ? 'free' : `${read} / ${written} per million tokens`}, for every account`;
}

/** Empty before the first start: then nobody is there who could use the model. */
async function accountsOfOperators(config: Config): Promise<readonly string[]> {
  try {
    return await reading({ config }, ({ repositories }) => repositories.listOperatorAccounts({}));
  } catch (error) {
    if (error instanceof OperationError || error instanceof StoreError) return [];
    throw error;
  }
}

/** `tokenhouse models sell`: sets the list price of a model and opens it to every account. */
export async function sellModel(
  context: Context,
  options: TermsOptions & { readonly config?: string },
  named = '',
): Promise<number> {
  const { config, print } = context;
  const found = modelInFile(config, named);
  if (options.price === undefined && options.free !== true)
    throw new OperationError('Name its price, for example --price 0.10/0.40, or give it away with --free.');
  const pricing = options.price ?? nothing;
  const { written, reloaded } = await writeConfig(context, options.config, (text) =>
    changedInFile(withSettings(text, found.id, { pricing, dedicated_to: null }), found.id),
  );
  print.result({ id: found.id, pricing, config: written, is_in_force: reloaded }, [
    `${found.id}: ${termsLine(found.id, { pricing })}`,
    takenOverLine(reloaded),
  ]);
  return 0;
}
