import type { TokenControls } from '../../src/generation/request.ts';

/** What text completions do when the client says nothing. */
export const plainTokens: TokenControls = {
  echo: false,
  returnsIds: false,
  namesIds: false,
  stopIds: [],
  ignoresEnd: false,
  tokensMin: 0,
  skipsSpecial: true,
  includesStop: false,
  addsSpecial: true,
};
