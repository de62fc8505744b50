import type { Catalogue } from '../../../i18n/text.ts';

const en = {
  title: 'Components',
} as const satisfies Catalogue;

export default en;
export type GalleryTexts = typeof en;
