import type { Translated } from '../../../i18n/text.ts';
import type { GalleryTexts } from './en.ts';

const de: Translated<GalleryTexts> = {
  title: 'Bausteine',
};

export default de;
