package dump

import "time"

func init() { writerStep = time.Microsecond } // nobody writes while these tests read
