import { signal } from '@preact/signals'

/** Of the view that is shown. The frame makes the document's title of it. */
export const pageTitle = signal('Home')
