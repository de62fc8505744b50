/**
 * What a request asked for and did not get, although it was served as the specification wants (§4.2.4(5), part 1): told by the header
 * `x-tokenhouse-warning` and the receipt. The texts are for headers: ASCII, without quotes.
 */
export const warningTable = {
  images_removed: 'The model does not take images, so they were left out.',
  sampling_ignored:
    'The model uses sampling of its own, so temperature, top_p, presence_penalty and frequency_penalty were left out.',
  n_ignored: 'The model writes one choice, so n was left out.',
  effort_changed: 'The model does not have this reasoning effort here, so it got the nearest one.',
  tags_ignored: 'Service-Request-Tag counts for models that are dedicated to an account, so it was left out.',
} as const;

export type Warning = keyof typeof warningTable;

/** A list of tokens with a parameter (RFC 9651): `images_removed;text="The model …", n_ignored;text="…"`. */
export const warningHeader = (warnings: readonly Warning[]): string =>
  warnings.map((code) => `${code};text="${warningTable[code]}"`).join(', ');
