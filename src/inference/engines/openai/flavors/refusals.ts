import type { Refusal } from './flavor.ts';

export const noImages: Refusal = {
  text: /(image|audio|video) input is not supported|is not a multimodal model|At most 0 image/i,
  code: 'unsupported_feature',
  message: 'The model does not accept images. Leave them out, or choose a model whose card has `vision`.',
};

/** For a prompt of ids; the token's path replaces the field. */
export const foreignToken: Refusal = {
  text: /out of vocabulary|prompt contains invalid tokens|greater than or equal to the vocab|exceeds? (the )?vocab(ulary)?[ _]size/i,
  code: 'unsupported_value',
  message: "A token id is not in the model's vocabulary.",
  param: 'prompt',
};

export const unenforceable: Omit<Refusal, 'text'> = {
  code: 'unsupported_value',
  message: 'The model cannot enforce this schema or grammar. Check its syntax and references, or make it simpler.',
};
