import { list, textLike } from '../setting.ts';

export const modelIdPattern = '^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$';

/** The only accounts that have a model. */
export const dedicatedTo = (description: string) =>
  list(textLike('^acct_[0-9A-Za-z]{1,32}$', 'an account', { example: 'acct_1C9VER1i2IGG' }), {
    minItems: 1,
    maxItems: 1000,
    example: ['acct_1C9VER1i2IGG'],
    description,
  });
