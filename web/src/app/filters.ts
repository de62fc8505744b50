/**
 * Filters live in the URL, so that a view can be linked to and the back button works. A route reads its search parameters with
 * `searchOf`: what is not described there does not exist for the page, and a value that makes no sense is left out.
 *
 *   validateSearch: searchOf({ model: text, since: oneOf(['24h', '7d', '30d']), page: whole })
 */
export type Read<Value> = (written: unknown) => Value | undefined;

const textMax = 200;

export const text: Read<string> = (written) =>
  (typeof written === 'string' || typeof written === 'number') && String(written) !== ''
    ? String(written).slice(0, textMax)
    : undefined;

export const whole: Read<number> = (written) =>
  Number.isSafeInteger(Number(written)) && written !== '' && written !== null ? Number(written) : undefined;

export const flag: Read<boolean> = (written) =>
  written === true || written === 'true' || written === 1 ? true : undefined;

export const oneOf =
  <const Value extends string>(values: readonly Value[]): Read<Value> =>
  (written) =>
    values.find((value) => value === written);

export type SearchOf<Readers> = {
  readonly [Key in keyof Readers]?: (Readers[Key] extends Read<infer Value> ? Value : never) | undefined;
};

/** For `validateSearch`. Every key is there, so that what a link carries besides cannot come through unread. */
export const searchOf =
  <const Readers extends Readonly<Record<string, Read<unknown>>>>(readers: Readers) =>
  (search: Readonly<Record<string, unknown>>): SearchOf<Readers> =>
    Object.fromEntries(Object.entries(readers).map(([key, read]) => [key, read(search[key])])) as SearchOf<Readers>;
