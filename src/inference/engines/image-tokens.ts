import type { ImageSize, ImageTokens } from '../../generation/request.ts';

/** Returns how many tokens an image of this size may become; `undefined`: its size is not known yet. */
export type ImageTokenRule = (size: ImageSize | undefined) => ImageTokens;

/** The assumed size of an image of unknown size. */
const ordinary: ImageSize = { width: 1_024, height: 1_024 };

/**
 * Servers that run open models; the count depends on the model, which a server does not report. The likely count is Qwen's rule, one token
 * per 28 × 28 pixels and at most 16,384. The bound covers the other models' rules too: 14 × 14 pixels with one more token for each row
 * (Pixtral and ViT without merging), and 4,160 for a small image where a model cuts every image into the same number of tiles or draws it
 * larger (LLaVA-NeXT 2,880, InternVL 3,328, Pixtral at its largest 4,160).
 */
export const openModelImageTokens: ImageTokenRule = (size) => {
  const { width, height } = size ?? ordinary;
  const likely = Math.min(Math.ceil(width / 28) * Math.ceil(height / 28), 16_384);
  if (size === undefined) return { likely, most: 16_384 };
  const patches = Math.ceil(height / 14) * (Math.ceil(width / 14) + 1);
  return { likely, most: Math.max(4_160, Math.min(patches, 16_384)) };
};

/**
 * OpenAI's published rule: the image is fitted into 2,048 × 2,048, then to 768 on the shorter side; a base and a rate per tile of 512 ×
 * 512. Likely with 85 and 170 (GPT-4o and 4.1), at most with 2,833 and 5,667 (GPT-4o mini, the highest of all).
 */
export const openAiImageTokens: ImageTokenRule = (size) => {
  const { width, height } = size ?? ordinary;
  const fitted = Math.min(1, 2_048 / Math.max(width, height));
  const scale = fitted * Math.min(1, 768 / (Math.min(width, height) * fitted));
  const tiles = Math.ceil((width * scale) / 512) * Math.ceil((height * scale) / 512);
  return { likely: 85 + 170 * tiles, most: 2_833 + 5_667 * (size === undefined ? 8 : tiles) };
};
