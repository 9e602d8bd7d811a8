package vfs

import "os"

// Flags of FS.OpenFile, the os.O_* ones of the same names, so that a package which works on an FS has no reason to
// import os.
const (
	O_RDONLY = os.O_RDONLY // read only
	O_RDWR   = os.O_RDWR   // read and write
	O_WRONLY = os.O_WRONLY // write only
	O_CREATE = os.O_CREATE // create the file if it is missing
	O_EXCL   = os.O_EXCL   // with O_CREATE: the file must be missing, or fs.ErrExist
	O_TRUNC  = os.O_TRUNC  // cut an existing file to nothing
)
