import { ApiError } from '../platform/errors.ts';

/**
 * Returns the key that a request carries, on either host: `Authorization: Bearer <key>`, else `x-api-key` (specification §5.1). undefined:
 * no key; an empty value counts as absent. Throws `invalid_api_key` for any other form of `Authorization`, regardless of other headers.
 */
export function presentedKey(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
): string | undefined {
  const authorization = single(headers['authorization']);
  if (authorization !== undefined && authorization !== '') {
    const [, token] = /^Bearer (.*)$/is.exec(authorization) ?? [];
    if (token === undefined) throw new ApiError('invalid_api_key', 'The Authorization header must be: Bearer <key>.');
    if (token !== '') return token;
  }
  const apiKey = single(headers['x-api-key']);
  return apiKey === undefined || apiKey === '' ? undefined : apiKey;
}

const single = (value: string | readonly string[] | undefined): string | undefined =>
  typeof value === 'string' || value === undefined ? value : value[0];
