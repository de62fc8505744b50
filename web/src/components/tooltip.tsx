import * as Primitive from 'radix-ui/tooltip';
import { use } from 'react';
import type { ReactNode } from 'react';

import { FloatingHome } from './dialog.tsx';
import styles from './menu.module.css';

/** More about a control that one can reach by keyboard; never what a person has to know. */
export function Tooltip({ text, children }: { readonly text: ReactNode; readonly children: ReactNode }) {
  const home = use(FloatingHome);
  return (
    <Primitive.Provider delayDuration={300}>
      <Primitive.Root>
        <Primitive.Trigger asChild>{children}</Primitive.Trigger>
        <Primitive.Portal container={home}>
          <Primitive.Content className={styles['tip']} sideOffset={4} collisionPadding={8}>
            {text}
          </Primitive.Content>
        </Primitive.Portal>
      </Primitive.Root>
    </Primitive.Provider>
  );
}
