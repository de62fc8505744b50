import type { Translated } from '../../../i18n/text.ts';
import type { GalleryTexts } from './en.ts';

const zh: Translated<GalleryTexts> = {
  title: '组件',
};

export default zh;
