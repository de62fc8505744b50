import { lazyRouteComponent } from '@tanstack/react-router';
import type { ComponentType } from 'react';

import { loadTexts } from '../i18n/text.ts';

/** A page that is loaded when somebody goes there, with the texts and the styles of its area. */
export const lazyPage = (area: string, load: () => Promise<{ readonly default: ComponentType }>) =>
  lazyRouteComponent(async () => {
    const [page] = await Promise.all([load(), loadTexts(area), loadStyles(area)]);
    return page;
  });

/** The sheet of an area is in the page from the start, switched off: a browser fetches it when it is switched on. */
function loadStyles(area: string): Promise<void> {
  const link = document.querySelector<HTMLLinkElement>(`link[data-area="${area}"]`);
  if (link === null || !link.disabled) return Promise.resolve();
  return new Promise((resolve, reject) => {
    link.addEventListener('load', () => resolve(), { once: true });
    link.addEventListener('error', () => reject(new Error('The styles of the page could not be loaded.')), {
      once: true,
    });
    link.disabled = false;
  });
}
